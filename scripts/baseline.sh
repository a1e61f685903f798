#!/bin/sh
# Builds the release program of a commit, for `tidepool bench --against`, and prints its path:
#   scripts/baseline.sh COMMIT
# It is kept as target/baseline/COMMIT/tidepool with its SHA-256 beside it. One that is there and whole is not built again.
set -eu
cd "$(dirname "$0")/.."
[ $# = 1 ] || { echo "usage: scripts/baseline.sh COMMIT" >&2; exit 2; }
commit=$(git rev-parse --verify --quiet "$1^{commit}" | cut -c1-12)
[ -n "$commit" ] || { echo "baseline.sh: this repository has no commit $1" >&2; exit 2; }
all=$(realpath -m "${CARGO_TARGET_DIR:-target}")/baseline
kept=$all/$commit
if ! (cd "$kept" && sha256sum --check --status tidepool.sha256) 2>/dev/null; then
    # Both are gone when this ends, however it ends.
    work=$(mktemp -d) making=$kept.making.$$
    trap 'git worktree remove --force "$work/tree" 2>/dev/null || true; rm -rf "$work" "$making"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    git worktree add --quiet --detach "$work/tree" "$commit" >&2
    # As the Makefile's release does. Crates of others are built once for all commits.
    (cd "$work/tree" && CARGO_TARGET_DIR="$all/build" TIDEPOOL_COMMIT="$(git describe --always --dirty --abbrev=12)" \
        "${CARGO:-cargo}" build --release --locked -p tidepool) >&2
    mkdir -p "$making"
    cp "$all/build/release/tidepool" "$making/tidepool"
    (cd "$making" && sha256sum tidepool >tidepool.sha256)
    rm -rf "$kept"
    mv "$making" "$kept"
    # What was built of this workspace is named after the temporary folder: no later call could use it.
    rm -rf "$all"/build/release/deps/*tidepool* "$all"/build/release/.fingerprint/tidepool* "$all"/build/release/build/tidepool*
fi
echo "$kept/tidepool"
