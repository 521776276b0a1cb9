#!/usr/bin/env bash
# Seconds until the shipped model's first kernels, and until a cancel takes effect.
source "$(dirname "$0")/common.sh"
read -ra only <<<"${MEASUREMENT_ONLY:-cancel optimize}"
words=()
[[ $size == full ]] || words=(--short)
exec "$python" bench/run.py --target "$target" --only "${only[@]}" --out "$MEASUREMENT_OUT" "${words[@]}"
