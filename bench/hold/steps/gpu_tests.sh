#!/usr/bin/env bash
# The tests that need a GPU, of the files whose imports this machine has.
source "$(dirname "$0")/common.sh"
# Tests have folders of their own, which this would outrank.
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
most=$(at_least 1 'HOLD_CORES / 2')
exec "$python" -m pytest -m "$([[ $target == cuda ]] && echo gpu || echo 'not slow')" -p no:cacheprovider \
  -n $((most < 6 ? most : 6)) --continue-on-collection-errors --junitxml="$HOLD_OUT/junit.xml" "${files[@]}"
