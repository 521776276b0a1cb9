#!/usr/bin/env bash
# The generator's candidates for the tasks of `tasks`, judged: 50,000 at most.
source "$(dirname "$0")/common.sh"
judges=$(at_least 1 'HOLD_CORES / 2')
words=(--candidates 24 --tasks-most 2084 --processes $((judges < 8 * HOLD_GPUS ? judges : 8 * HOLD_GPUS)))
[[ $size == full ]] || words=(--candidates 4 --tasks-most 5 --processes 1)
exec "$python" -m kernel_assistant_training label --out "$HOLD_OUT" --tasks "${HOLD_TASKS:-$results/tasks}" \
  --target "$target" --seconds "$HOLD_SECONDS" "${words[@]}"
