#!/bin/sh
# Lint, format, types, tests: everything that must hold before a change is done. Arguments go to pytest.
# Uses .venv where it is there (scripts/test.sh makes it), otherwise the tools on PATH.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
export OPENBLAS_NUM_THREADS=1
ruff check .
ruff format --check .
mypy
exec python -m pytest -n auto --dist worksteal "$@"
