#!/bin/sh
# Sets everything up in .venv, then runs every check. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh dev
exec scripts/check.sh "$@"
