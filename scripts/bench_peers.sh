#!/bin/sh
# Compares Tidepool's drop-in with Mooncake's own wheel and with Redis: the same work on each side. Arguments go to python/bench/peers.py.
set -eu
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mooncake=$(scripts/mooncake_env.sh)
redis=$(scripts/redis_env.sh)
vllm=$(scripts/python_env.sh vllm python/requirements-vllm.txt)
scripts/build_wheels.sh dist
rm -rf "$target/peers"
python3 -m venv "$target/peers"
"$target/peers/bin/pip" install --quiet --disable-pip-version-check dist/*.whl
python3 python/bench/peers.py --tidepool "$target/peers" --mooncake "$mooncake" --redis "$redis" --vllm "$vllm" --json "$target/peers.json" "$@"
