#!/bin/sh
# Fuzz every reader: scripts/fuzz.sh --minutes 10. Inputs that went wrong are kept under tests/corpus/.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
export OPENBLAS_NUM_THREADS=1
exec python scripts/fuzz.py "$@"
