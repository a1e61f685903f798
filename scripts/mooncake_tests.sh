#!/bin/sh
# Runs the tests of python/tests/mooncake_store against Mooncake itself: they say whether it does what the drop-in copies.
set -eu
cd "$(dirname "$0")/.."
env=$(scripts/mooncake_env.sh)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/tests"
cp -r python/tests/mooncake_store python/tests/__init__.py python/tests/waiting.py "$copy/tests"
cd "$copy" && PATH="$env/bin:$PATH" "$env/bin/python" -m pytest -q -p no:cacheprovider tests "$@"
