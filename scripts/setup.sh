#!/bin/sh
# Create .venv with exactly the versions of constraints.txt. torch goes in first and by exact version:
# asked for by range, or pulled in by another package, pip would fetch a build with gigabytes of CUDA libraries.
set -eu

python=${PYTHON:-python3}
venv=.venv

fail() {
    printf '\nset-up failed: %s\n' "$1" >&2
    exit 1
}

command -v "$python" >/dev/null 2>&1 ||
    fail "expected Python 3.11 or newer; '$python' was not found. Install it, or run: make PYTHON=/path/to/python3.11 ..."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "expected Python 3.11 or newer; got $("$python" -V 2>&1). Run: make PYTHON=/path/to/python3.11 ..."
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "expected Python's venv module; $python has none. Install it (Debian: apt-get install python3-venv)."

rm -f "$venv/.ready"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" || fail "could not create $venv."

install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "$@" 2>"$venv/pip.log" || {
        tail -n 5 "$venv/pip.log" >&2
        fail "expected a reachable package index; pip could not install: $*. Check the network (or PIP_INDEX_URL) and run the command again; finished downloads are kept."
    }
}

torch=$(sed -n 's/^torch==/torch==/p' constraints.txt)
[ -n "$torch" ] || fail "expected a line 'torch==…' in constraints.txt; found none. Restore the file."

echo "set-up 1/4: $torch"
install "$torch"
echo "set-up 2/4: build backend"
install hatchling editables
echo "set-up 3/4: snapfm, snapfm-bench and their tools"
install --no-build-isolation --editable '.[dev]' --editable './bench[peers]'
# The tests of snapfm.adapters train models with these. Alone: torchcfm asks for torchdyn and with it for Lightning, Jupyter and
# torchvision, of which its flow matchers import nothing but POT. No extra names them, because snapfm imports neither, and
# flow_matching's licence (CC BY-NC) must not come along with a dependency.
echo "set-up 4/4: flow_matching and torchcfm, for tests"
install --no-deps flow_matching torchcfm POT
touch "$venv/.ready"
echo "set-up done: $("$venv/bin/python" -V), $("$venv/bin/python" -c 'import torch; print("torch", torch.__version__)')"
