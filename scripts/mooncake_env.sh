#!/bin/sh
# Prints the path of an environment with Mooncake's own wheel, made if need be, and says what the system lacks for it.
set -eu
cd "$(dirname "$0")/.."
env=$(scripts/python_env.sh mooncake python/requirements-mooncake.txt)
needed='libibverbs1 librdmacm1 libnuma1 liburing2 libcurl4'
if ! "$env/bin/python" -c 'import mooncake.store' 2>/dev/null; then
    # shellcheck disable=SC2086
    { [ "$(id -u)" = 0 ] && apt-get install -y -q $needed >&2; } || true
    "$env/bin/python" -c 'import mooncake.store' || { echo "Mooncake needs: apt-get install $needed" >&2; exit 1; }
fi
echo "$env"
