#!/bin/sh
# Compares Tidepool's drop-in with Mooncake's own wheel: the same script on both sides. Arguments go to python/bench/peers.py.
set -eu
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mooncake=$(scripts/mooncake_env.sh)
scripts/build_wheels.sh dist
rm -rf "$target/peers"
python3 -m venv "$target/peers"
"$target/peers/bin/pip" install --quiet --disable-pip-version-check dist/*.whl
python3 python/bench/peers.py --tidepool "$target/peers" --mooncake "$mooncake" --json "$target/peers.json" "$@"
