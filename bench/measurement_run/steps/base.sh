#!/usr/bin/env bash
# A random model of 7 B parameters with adapters: 20 updates at 32k tokens, killed once.
source "$(dirname "$0")/common.sh"
words=(--size 7b --updates 20)
[[ $size == full ]] || words=(--size tiny --updates 2 --kill-after 1 --kill-seconds 0.5 --context 16384)
base=$MEASUREMENT_WORK/base-$size
# The model is written before the run starts, so without a run it may be incomplete.
[[ -d $MEASUREMENT_OUT/run ]] || rm -rf "$base" "$MEASUREMENT_OUT"
exec "$python" -m bench.base_model --target "$target" --out "$MEASUREMENT_OUT" --base "$base" --seconds "$MEASUREMENT_SECONDS" \
  "${words[@]}"
