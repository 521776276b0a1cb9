#!/usr/bin/env bash
# The tests that need a GPU, without files whose imports are missing on this machine.
source "$(dirname "$0")/common.sh"
# Tests use folders of their own, which this variable would override.
unset KERNEL_ASSISTANT_HOME
files=(tests/runner/test_wire.py)
if [[ $size == full ]]; then
  mapfile -t files < <(grep -rlE 'mark\.gpu|"gpu"' tests --include='test_*.py' | sort)
  left=()
  "$python" -c 'import pytest_lsp, pygls' 2>/dev/null || left+=(lsp)
  "$python" -c 'import textual' 2>/dev/null || left+=(tui)
  for part in "${left[@]}"; do
    echo "left out for want of packages: tests/$part"
    mapfile -t files < <(printf '%s\n' "${files[@]}" | grep -v "^tests/$part/")
  done
fi
most=$(at_least 1 'MEASUREMENT_CORES / 2')
exec "$python" -m pytest -m "$([[ $target == cuda ]] && echo gpu || echo 'not slow')" -p no:cacheprovider \
  -n $((most < 6 ? most : 6)) --continue-on-collection-errors --junitxml="$MEASUREMENT_OUT/junit.xml" "${files[@]}"
