#!/usr/bin/env bash
# Makes .venv in the checkout: torch and transformers for the capture, pytest and ruff for the
# tests, and the tokamak package from python/. Does nothing when it is there and up to date.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=$(sha256sum scripts/requirements.txt scripts/python_env.sh | sha256sum | cut -c1-16)
stamp=.venv/.tokamak
[ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ] || exit 0

echo "making .venv (torch, transformers: some minutes the first time)" >&2
python3 -m venv .venv
.venv/bin/pip install -q --disable-pip-version-check -r scripts/requirements.txt
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
echo "$PWD/python" >"$site/tokamak.pth"
echo "$wanted" >"$stamp"
