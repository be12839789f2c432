#!/bin/sh
# Recomputes every contract fixture in a folder and fails on drift.
#   scripts/check_fixtures.sh DIR
# PYTHON names the interpreter (default: python3). Exit: 0 all agree, 4 no fixture there, 13 drift, 2 usage.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" exec "${PYTHON:-python3}" -m clawmem_core.contract.fixtures "$@"
