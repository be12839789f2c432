#!/bin/sh
# Makes the virtual environment .venv inside this folder and installs the toolchain into it, with the extras that build.
#   scripts/setup.sh [EXTRA...]     extras that must install as well, such as dev
# PYTHON names the interpreter (default: python3, 3.11 or newer). Uses the network for what is not there yet.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup: $python is older than 3.11 or missing; install python3 (Debian: python3 python3-venv)" >&2
    exit 1
}
if ! [ -x .venv/bin/pip ]; then
    "$python" -m venv .venv || {
        echo "setup: this Python cannot make virtual environments; on Debian install python3-venv" >&2
        exit 1
    }
fi
pip() { .venv/bin/python -m pip --disable-pip-version-check --quiet "$@"; }

# requirements NAME: what pyproject.toml lists for an extra, one a line
requirements() {
    .venv/bin/python - "$1" <<'EOF'
import sys, tomllib
with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["project"]["optional-dependencies"][sys.argv[1]], sep="\n")
EOF
}

pip install --upgrade pip
rm -rf build
pip install .
for extra in "$@"; do
    requirements "$extra" >.venv/"$extra".txt
    pip install -r .venv/"$extra".txt
done
for extra in fast ann; do
    requirements "$extra" >.venv/"$extra".txt
    if ! pip install -r .venv/"$extra".txt 2>.venv/"$extra".log; then
        echo "setup: going on without $(tr '\n' ' ' <.venv/"$extra".txt)(extra '$extra'; why: .venv/$extra.log)" >&2
        echo "setup: on Debian it may need g++ and python3-dev; searches give the same results, only slower" >&2
    fi
done
