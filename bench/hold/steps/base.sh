#!/usr/bin/env bash
# A random model of 7 B parameters with adapters: 20 updates at 32k tokens, killed once.
source "$(dirname "$0")/common.sh"
words=(--size 7b --updates 20)
[[ $size == full ]] || words=(--size tiny --updates 2 --kill-after 1 --kill-seconds 0.5 --context 16384)
base=$HOLD_WORK/base-$size
# A run begins behind its model: without one the model may be half of one.
[[ -d $HOLD_OUT/run ]] || rm -rf "$base" "$HOLD_OUT"
exec "$python" -m bench.base_model --target "$target" --out "$HOLD_OUT" --base "$base" --seconds "$HOLD_SECONDS" \
  "${words[@]}"
