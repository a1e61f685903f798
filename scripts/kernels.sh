#!/bin/sh
# Compiles crates/cuda/kernel/gather.cu to the PTX beside it, with NVIDIA's compiler from its Python package:
#   scripts/kernels.sh
# The kernel needs nothing newer than PTX 7.0 and Volta, and is marked so, for drivers that are older than the compiler.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-nvvm nvidia-cuda-crt
nvcc=$(find "$work/env" -path '*/bin/nvcc')
"$nvcc" -O3 -ptx -arch=compute_75 -o "$work/gather.ptx" crates/cuda/kernel/gather.cu
{
    echo "// Made from gather.cu by scripts/kernels.sh; do not edit."
    sed -e '/^\/\//d' -e 's/^\.version .*/.version 7.0/' -e 's/^\.target .*/.target sm_70/' "$work/gather.ptx"
} > crates/cuda/kernel/gather.ptx
