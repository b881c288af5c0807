#!/usr/bin/env bash
# Installs the Debian 12 packages that the build and the tests need; only what is missing.
set -euo pipefail

packages=(
  g++-12 cmake ninja-build ccache pkg-config git unzip ca-certificates
  libsimdjson-dev nlohmann-json3-dev libfmt-dev libcli11-dev libzip-dev zlib1g-dev libpcre2-dev libhwy-dev
  libicu-dev libgtest-dev libdnnl-dev valgrind
  clang-format-19 clang-tidy-19
  python3 python3-venv chromium
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "These Debian packages are missing; install them as root, then run this again:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "installing: ${missing[*]}" >&2
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -q -y --no-install-recommends "${missing[@]}"
