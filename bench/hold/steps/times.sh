#!/usr/bin/env bash
# Seconds to the shipped model's first kernels, and until a cancel is over.
source "$(dirname "$0")/common.sh"
read -ra only <<<"${HOLD_ONLY:-cancel optimize}"
words=()
[[ $size == full ]] || words=(--short)
exec "$python" bench/run.py --target "$target" --only "${only[@]}" --out "$HOLD_OUT" "${words[@]}"
