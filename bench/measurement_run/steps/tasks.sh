#!/usr/bin/env bash
# Tasks as people write them, kept if a kernel is worthwhile. The seed differs from the recipe's.
source "$(dirname "$0")/common.sh"
words=(--count 6000 --seed 1 --workers "$(at_least 1 'MEASUREMENT_CORES * 3 / 4')")
[[ $size == full ]] || words=(--count 20 --most 40 --blocks 0 --variants 1 --seed 1)
exec "$python" -m kernel_assistant_training synth --out "$MEASUREMENT_OUT" --target "$target" --recipe small \
  --compile aot_eager --seconds "$MEASUREMENT_SECONDS" "${words[@]}"
