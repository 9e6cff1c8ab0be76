#!/bin/sh
# Make a virtual environment at $1 with $PY: venv, else uv, else virtualenv; say what helps if none can.
set -u
venv=$1
PY=${PY:-python3}

"$PY" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Python 3.11 or newer is needed; '$PY' is not. Say which: make ... PY=python3.12" >&2
    exit 1
}
if [ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi
rm -rf "$venv"
if "$PY" -m venv "$venv" 2>/dev/null; then exit 0; fi
rm -rf "$venv"
if command -v uv >/dev/null && uv venv --seed --python "$PY" "$venv"; then exit 0; fi
rm -rf "$venv"
# Debian's python3 comes without ensurepip; a private copy of virtualenv does not need it.
if "$PY" -m pip install --quiet --disable-pip-version-check --target "$venv.bootstrap" virtualenv &&
    PYTHONPATH="$venv.bootstrap" "$PY" -m virtualenv --quiet "$venv"; then
    rm -rf "$venv.bootstrap"
    exit 0
fi
rm -rf "$venv" "$venv.bootstrap"
echo "Could not make a virtual environment with $PY." >&2
echo "Install one of: python3-venv (apt install python3-venv), uv, or pip." >&2
exit 1
