#!/bin/sh
# Prints the path of an environment with Redis's Python client, made if need be, and installs the server where that can be.
set -eu
cd "$(dirname "$0")/.."
env=$(scripts/python_env.sh redis python/requirements-redis.txt)
if ! command -v redis-server >/dev/null; then
    { [ "$(id -u)" = 0 ] && apt-get install -y -q redis-server >&2; } || true
    command -v redis-server >/dev/null || { echo 'Redis needs: apt-get install redis-server' >&2; exit 1; }
fi
echo "$env"
