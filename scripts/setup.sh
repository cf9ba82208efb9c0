#!/bin/sh
# Create .venv with exactly the versions of constraints.txt: `setup.sh demo` for what people use, `setup.sh dev` for the tests, too.
# torch goes in first and by exact version: asked for by range, or pulled in by another package, pip would fetch a build with
# gigabytes of CUDA libraries. Nothing is byte-compiled: Python does that for the few modules that are imported.
set -eu

level=${1:-demo}
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

rm -f "$venv/.ready" "$venv/.dev-ready"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" || fail "could not create $venv."

install() {
    "$venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt "$@" 2>"$venv/pip.log" || {
        tail -n 5 "$venv/pip.log" >&2
        fail "expected a reachable package index; pip could not install: $*. Check the network (or PIP_INDEX_URL) and run the command again; finished downloads are kept."
    }
}

torch=$(sed -n 's/^torch==/torch==/p' constraints.txt)
[ -n "$torch" ] || fail "expected a line 'torch==…' in constraints.txt; found none. Restore the file."

echo "set-up 1/2: $torch"
install "$torch" hatchling editables numba scipy
# The kernels need no more than this: they are compiled on one core while pip keeps the other one busy. `make kernels`, which
# comes next, waits for them, compiles the rest, and says what goes wrong.
PYTHONPATH=src "$venv/bin/python" -c 'from snapfm.kernels.numba.ahead import compile_all; compile_all(1)' >/dev/null 2>&1 &
if [ "$level" = dev ]; then
    echo "set-up 2/2: snapfm, snapfm-bench and what tests need"
    install --no-build-isolation --editable '.[dev]' --editable './bench[peers]'
    # The tests of snapfm.adapters train models with these. Alone: torchcfm asks for torchdyn and with it for Lightning, Jupyter and
    # torchvision, of which its flow matchers import nothing but POT. No extra names them, because snapfm imports neither, and
    # flow_matching's license (CC BY-NC) must not come along with a dependency.
    # Compiled by pip: warnings of the compiler, which flow_matching causes, are errors where tests import it.
    install --compile --no-deps flow_matching torchcfm POT
    touch "$venv/.dev-ready"
else
    echo "set-up 2/2: snapfm and snapfm-bench"
    install --no-build-isolation --editable . --editable ./bench
fi
touch "$venv/.ready"
echo "set-up done: $("$venv/bin/python" -V), $torch"
