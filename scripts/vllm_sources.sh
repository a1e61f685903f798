#!/bin/sh
# Prints the path of a vLLM release's own Python sources, without its compiled parts and its dependencies, and fetches them if
# they are not there:
#   scripts/vllm_sources.sh VERSION
# They are kept where scripts/python_env.sh keeps environments, and can stand before another version's on PYTHONPATH.
set -eu
version=$1
cache=${TIDEPOOL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidepool}
sources=$cache/vllm-sources-$version
if [ ! -e "$sources/complete" ]; then
    making=$sources.making.$$
    rm -rf "$sources" "$making"
    mkdir -p "$making/wheel"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$making/wheel" "vllm==$version" >&2
    python3 - "$making" <<'END'
import pathlib, sys, zipfile

making = pathlib.Path(sys.argv[1])
[wheel] = (making / "wheel").iterdir()
with zipfile.ZipFile(wheel) as packed:
    for name in packed.namelist():
        if name.endswith(".py") or name.endswith(".dist-info/METADATA"):
            packed.extract(name, making)
wheel.unlink()
# By its version vLLM knows what it was built for.
[about] = making.glob("*.dist-info/METADATA")
lines = [line + "+cpu" if line.startswith("Version: ") else line for line in about.read_text().splitlines()]
about.write_text("\n".join(lines))
END
    rmdir "$making/wheel"
    touch "$making/complete"
    mv "$making" "$sources"
fi
echo "$sources"
