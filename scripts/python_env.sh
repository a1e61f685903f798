#!/bin/sh
# Prints the path of a Python environment with the packages of a requirements file, and makes it if it is not there:
#   scripts/python_env.sh NAME REQUIREMENTS [LENDER]
# A file beside it whose name ends in .nodeps.txt lists packages to install without what they ask for. LENDER is another
# environment: the new one can import what is installed there, and installs only what is not.
# Environments are kept outside the checkout, one for each content of the file, and found again:
# ${TIDEPOOL_CACHE:-~/.cache/tidepool}/NAME-HASH.
set -eu
name=$1 requirements=$2 lender=${3:-} python=python3
cache=${TIDEPOOL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidepool}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ -z "$lender" ] || lender=$lender/lib/python$version/site-packages
alone=${requirements%.txt}.nodeps.txt
[ -e "$alone" ] || alone=/dev/null
hash=$( (echo "$version"; [ -z "$lender" ] || echo "$lender"; cat "$requirements" "$alone") | sha256sum | cut -c1-12)
env=$cache/$name-$hash
if [ ! -e "$env/complete" ]; then
    mkdir -p "$cache"
    # Made under another name first: a half-made environment is never taken for a whole one.
    rm -rf "$env" "$env.making.$$"
    "$python" -m venv "$env.making.$$" >&2
    [ -z "$lender" ] || echo "$lender" >"$env.making.$$/lib/python$version/site-packages/lent.pth"
    # Conflicts that it would warn of are those of packages installed without what they ask for.
    "$env.making.$$/bin/python" -m pip install --quiet --disable-pip-version-check --no-warn-conflicts -r "$requirements" >&2
    [ "$alone" = /dev/null ] ||
        "$env.making.$$/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$alone" >&2
    touch "$env.making.$$/complete"
    mv "$env.making.$$" "$env"
    # Scripts name the interpreter that they were installed for.
    find "$env/bin" -type f -exec sed -i "1s|$env\.making\.$$|$env|" {} +
fi
echo "$env"
