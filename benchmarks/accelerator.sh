#!/bin/bash
# One command for a lent accelerator: rows of measured steps beside their bounds, in less than ten minutes, on whatever JAX finds.
cd "$(dirname "$0")/.." || exit 2
python=.venv/bin/python
[ -x "$python" ] || python=python3
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" NPROC="${NPROC:-16}"
command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
exec timeout 600 "$python" benchmarks/accelerator.py "$@"
