#!/bin/sh
# Builds the Python wheels, for use: scripts/build_wheels.sh DIR [profile of cargo, release by default]
set -eu
cd "$(dirname "$0")/.."
out=$(realpath -m "$1") profile=${2:-release}
env=$(scripts/python_env.sh dev python/requirements-dev.txt)
rm -rf "$out"
export PATH="$env/bin:$PATH"
(cd python/tidepool && maturin build --quiet --locked --profile "$profile" --out "$out")
pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$out" python/tidepool-mooncake
ls -1 "$out"
