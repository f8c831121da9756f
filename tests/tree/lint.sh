#!/usr/bin/env bash
# Format, warnings of both compilers as errors, the house rules. Called by ./dev lint.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v clang-format >/dev/null || { echo "lint: clang-format is missing: apt-get install clang-format" >&2; exit 1; }
command -v clang >/dev/null || { echo "lint: clang is missing: apt-get install clang libomp-dev" >&2; exit 1; }
git ls-files '*.c' '*.h' '*.inc' '*.cpp' '*.cu' | xargs clang-format --dry-run --Werror
echo "format: ok"
cmake --preset release -B build/lint-gcc -DFLEXLAB_WERROR=ON >/dev/null
cmake --build build/lint-gcc >build/lint-gcc.log 2>&1 || { tail -n 40 build/lint-gcc.log >&2; exit 1; }
echo "gcc: no warnings"
cmake --preset clang >/dev/null
cmake --build build/clang >build/lint-clang.log 2>&1 || { tail -n 40 build/lint-clang.log >&2; exit 1; }
echo "clang: no warnings"
python3 tests/tree/test_layers.py . build/lint-gcc
python3 tests/tree/test_headers.py . build/lint-gcc
python3 tests/tree/test_symbols.py . build/lint-gcc/libflexlab.so build/lint-gcc/libflexlab.a
python3 tests/tree/test_symbols.py . build/clang/libflexlab.so build/clang/libflexlab.a
python3 tests/tree/test_templates.py . build/lint-gcc
