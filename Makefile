# One command each: what it does is in `make help`, and CI runs `make test` and nothing else.
#
# Only the first step of `make test` uses the network (crates, Python packages, and cargo-deny where it is missing); all
# others are --frozen: offline, with Cargo.lock as it is.

SHELL := /bin/sh
CARGO ?= cargo
DENY_VERSION := 0.20.2
BIN_DIR := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help test fetch format lint docs deny tests python run demo bench bench-against bench-peers release wheel

help:
	@echo 'make test   everything CI checks: format, lints, docs, licences, all tests'
	@echo 'make run    build, then run a small pool on this host (Ctrl-C ends it)'
	@echo 'make demo   what a pool does for coding agents, in a minute; page in target/demo.html'
	@echo 'make wheel  build the Python wheels into dist/'
	@echo 'make bench  build, then measure against memcpy and raw sockets; JSON in target/bench.json'
	@echo 'make bench-against BASE=COMMIT  is this tree slower than that commit? JSON in target/against.json'
	@echo 'make bench-peers  the same Python script on Tidepool and on Mooncake; JSON in target/peers.json'
	@echo 'make help   this list'
	@echo 'Parts of make test: fetch format lint docs deny tests python'

# In order, also under make -j: each part builds on what the one before left in the target directory.
test:
	@$(MAKE) --no-print-directory fetch
	@$(MAKE) --no-print-directory format
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory docs
	@$(MAKE) --no-print-directory deny
	@$(MAKE) --no-print-directory tests
	@$(MAKE) --no-print-directory python
	@echo '== all checks passed'

fetch:
	@echo '== fetch: crates of Cargo.lock, Python packages for the tests, and cargo-deny where it is missing'
	@scripts/python_env.sh dev python/requirements-dev.txt >/dev/null
	@for engine in vllm sglang lmcache; do scripts/engine_python.sh $$engine >/dev/null || exit 1; done
	@scripts/vllm_sources.sh 0.26.0 >/dev/null || echo "== the sources of vLLM 0.26 could not be fetched: its test will be skipped"
	@$(CARGO) fetch --locked
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --locked --version $(DENY_VERSION) cargo-deny

format:
	@echo '== format'
	@$(CARGO) fmt --all --check

lint:
	@echo '== lint: clippy, warnings are errors'
	@$(CARGO) clippy --frozen --workspace --all-targets -- -D warnings

docs:
	@echo '== docs: rustdoc, warnings are errors'
	@RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --frozen --workspace --no-deps

deny:
	@echo '== deny: licences, bans and sources of dependencies'
	@$(CARGO) deny --frozen check --hide-inclusion-graph licenses bans sources

# Tests start the programs of this workspace as processes, so those are built first.
tests:
	@echo '== tests: programs that tests start'
	@$(CARGO) build --frozen --workspace --bins
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
		echo '== tests: nextest'; \
		$(CARGO) nextest run --frozen --workspace || exit 1; \
		echo '== tests: examples in the docs'; \
		$(CARGO) test --frozen --workspace --doc; \
	else \
		echo '== tests: cargo test'; \
		$(CARGO) test --frozen --workspace; \
	fi
	@[ -e /dev/nvidiactl ] || echo '== tests: SKIPPED: copies by NVIDIA'"'"'s own driver; this host has no GPU, and what a pretended one can prove is proved'
	@[ -n "$$TIDEPOOL_TRACES" ] || echo '== tests: SKIPPED: figures of public traces; set TIDEPOOL_TRACES to a folder that has them'

python:
	@echo '== python: wheels, lints, types, tests'
	@scripts/python_tests.sh

wheel:
	@scripts/build_wheels.sh dist

bench-peers:
	@scripts/bench_peers.sh

# The commit is compiled in, so that a result says what it measured.
release:
	@TIDEPOOL_COMMIT="$$(git describe --always --dirty --abbrev=12 2>/dev/null)" $(CARGO) build --release --locked -p tidepool

run: release
	@$(BIN_DIR)/release/tidepool up

# Starts a pool for itself, and takes it away again.
demo: release
	@mkdir -p target
	@$(BIN_DIR)/release/tidepool demo --html target/demo.html

bench: release
	@mkdir -p target
	@$(BIN_DIR)/release/tidepool bench --json-file target/bench.json
	@echo 'JSON: target/bench.json'

# The build of a commit is kept. ONLY=FIELD,FIELD compares these alone.
bench-against:
	@[ -n "$(BASE)" ] || { echo 'say what to compare with: make bench-against BASE=COMMIT'; exit 2; }
	@mkdir -p target
	@CARGO="$(CARGO)" scripts/baseline.sh "$(BASE)" >/dev/null
	@$(MAKE) --no-print-directory release
	@$(BIN_DIR)/release/tidepool bench --against "$$(scripts/baseline.sh "$(BASE)")" $(if $(ONLY),--only $(ONLY)) --json-file target/against.json
