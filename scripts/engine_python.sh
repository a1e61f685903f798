#!/bin/sh
# Prints the Python of an environment with an engine's own wheel: scripts/engine_python.sh vllm|sglang|lmcache
# Those of SGLang and LMCache are built on vLLM's, which has most of what they import. Where one of the two cannot be made
# it says so and prints nothing, and their tests are skipped with the reason.
set -eu
cd "$(dirname "$0")/.."
vllm=$(scripts/python_env.sh vllm python/requirements-vllm.txt)
if [ "$1" = vllm ]; then
    echo "$vllm/bin/python"
elif env=$(scripts/python_env.sh "$1" "python/requirements-$1.txt" "$vllm"); then
    echo "$env/bin/python"
else
    echo "== NO ENVIRONMENT WITH $1 (what stopped it is above): its tests are skipped, nothing is proved about it" >&2
fi
