#!/usr/bin/env bash
# Every check of the project. Ends with one line: N passed, M failed, K skipped.
#   ./test.sh            all of it
#   ./test.sh quick      without the sanitizer build and clang-tidy
set -uo pipefail
cd "$(dirname "$0")"
mode=${1:-all}
results=$PWD/build/test-results
jobs=$(nproc)

# What the sanitizers watch: everything that reads a file from outside, and the engine.
asan_tests=$(cat tests/asan.txt)

failed_steps=()
step() { # name command...
  local name=$1
  shift
  echo
  echo "== $name"
  local start=$SECONDS
  if "$@"; then
    echo "-- $name: ok, $((SECONDS - start)) s"
  else
    echo "-- $name: FAILED, $((SECONDS - start)) s"
    failed_steps+=("$name")
  fi
}

quietly() { # shows the end of the output of a command that fails
  local log
  log=$(mktemp)
  "$@" >"$log" 2>&1 || { tail -60 "$log"; rm -f "$log"; return 1; }
  rm -f "$log"
}

build_release() { quietly cmake --preset release && quietly cmake --build --preset release -j "$jobs"; }
test_release() {
  GTEST_OUTPUT="xml:$results/gtest/" ctest --preset release -j "$jobs" \
    --output-junit "$results/ctest.xml" 2>&1 | tail -40
}
build_asan() {
  quietly cmake --preset asan &&
    quietly cmake --build --preset asan -j "$jobs" --target $asan_tests
}
test_asan() {
  local pattern
  pattern="^($(echo $asan_tests | tr ' ' '|'))$"
  GTEST_OUTPUT="xml:$results/gtest-asan/" ctest --preset asan -j "$jobs" -R "$pattern" \
    --output-junit "$results/ctest-asan.xml" 2>&1 | tail -20
}
sources() { git ls-files 'src/*.cpp' 'src/*.h' 'tests/*.cpp' 'bench/*.cpp' | grep -v '\.def$'; }
check_format() { sources | xargs clang-format-19 --dry-run --Werror; }
# All files take far more than ten minutes of two cores: the base always, beyond it what the last
# commit (TOKAMAK_TIDY_BASE) changed.
check_tidy() {
  local base=${TOKAMAK_TIDY_BASE:-HEAD~1}
  { git ls-files 'src/base/*.cpp'
    git diff --name-only --diff-filter=d "$base" -- 'src/*.cpp' 2>/dev/null | head -12
  } | grep -v '_test\.cpp$' | sort -u | xargs -P "$jobs" -n 1 clang-tidy-19 -p build --quiet 2>/dev/null
}
check_python() {
  .venv/bin/ruff check . && .venv/bin/ruff format --check .
}
test_python() {
  OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q -rs -n "$jobs" --dist loadfile --junit-xml="$results/pytest.xml" 2>&1 | tail -40
}

rm -rf "$results"
mkdir -p "$results/gtest" "$results/gtest-asan"
step "Debian packages" scripts/install_deps.sh
step "Python environment" scripts/python_env.sh
step "build" build_release
step "ctest" test_release
if [ "$mode" != quick ]; then
  step "build with sanitizers" build_asan
  step "ctest with sanitizers" test_asan
fi
step "clang-format" check_format
[ "$mode" = quick ] || step "clang-tidy" check_tidy
step "ruff" check_python
step "pytest" test_python

echo
for name in "${failed_steps[@]}"; do echo "failed step: $name"; done
python3 scripts/count_tests.py "$results" "${#failed_steps[@]}"
