#!/bin/sh
# Builds the Python packages (quickly, not for speed), installs them into target/python and checks them there: format and
# lints, types, stubs against the module, tests, examples in the docstrings. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
env=$(scripts/python_env.sh dev python/requirements-dev.txt)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
installed=$target/python
rm -rf "$installed"
scripts/build_wheels.sh "$target/python-wheels" dev
"$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$installed" "$target"/python-wheels/*.whl
"$env/bin/ruff" format --check python
"$env/bin/ruff" check python
"$env/bin/ruff" format --check --config python/ruff.toml bench
"$env/bin/ruff" check --config python/ruff.toml bench
export PYTHONPATH="$installed" PATH="$installed/bin:$env/bin:$PATH"
"$env/bin/python" -m mypy --config-file python/mypy.ini --strict -p tidepool -p mooncake
MYPYPATH=python:python/bench "$env/bin/python" -m mypy --config-file python/mypy.ini --strict python/bench
MYPYPATH=bench/gpu:python/tests/vllm "$env/bin/python" -m mypy --config-file python/mypy.ini --strict bench/gpu
"$env/bin/python" -m mypy.stubtest tidepool --mypy-config-file python/mypy.ini --allowlist python/stubtest-allowed.txt --ignore-unused-allowlist
cargo build --frozen --quiet -p tidepool-cuda --example pretended_driver
export TIDEPOOL_PRETENDED_DRIVER="$target/debug/examples/libpretended_driver.so"
TIDEPOOL_VLLM_PYTHON=$(scripts/engine_python.sh vllm)
TIDEPOOL_SGLANG_PYTHON=$(scripts/engine_python.sh sglang)
TIDEPOOL_LMCACHE_PYTHON=$(scripts/engine_python.sh lmcache)
export TIDEPOOL_VLLM_PYTHON TIDEPOOL_SGLANG_PYTHON TIDEPOOL_LMCACHE_PYTHON
"$env/bin/python" -m pytest -q -rs python/tests "$@"
