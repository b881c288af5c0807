#!/usr/bin/env bash
# From a fresh clone to an optimised model that tells a story.
set -euo pipefail
cd "$(dirname "$0")"

scripts/install_deps.sh
cmake --preset release >build.log 2>&1 || { cat build.log; exit 1; }
echo "building (some minutes the first time)" >&2
cmake --build --preset release -j "$(nproc)" --target tokamak >>build.log 2>&1 || { tail -50 build.log; exit 1; }

tokamak=build/bin/tokamak
model=examples/stories260k
out=out/stories260k
echo
echo "== tokamak optimize $model -o $out"
"$tokamak" optimize "$model" -o "$out" --golden "$model/golden.safetensors"
echo
echo "== tokamak run $out -p \"Once upon a time\""
"$tokamak" run "$out" -p "Once upon a time"
echo
echo "The report is $PWD/$out/report.html"
