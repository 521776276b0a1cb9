#!/usr/bin/env bash
# The generator's candidates for the tasks of `tasks`, judged, until there are 50,000; one row in a hundred has none.
source "$(dirname "$0")/common.sh"
judges=$(at_least 1 'HOLD_CORES * 3 / 4')
words=(--candidates 24 --rows-most 51000 --processes $((judges < 12 * HOLD_GPUS ? judges : 12 * HOLD_GPUS)))
[[ $size == full ]] || words=(--candidates 4 --tasks-most 5 --processes 1)
exec "$python" -m kernel_assistant_training label --out "$HOLD_OUT" --tasks "${HOLD_TASKS:-$results/tasks}" \
  --target "$target" --seconds "$HOLD_SECONDS" "${words[@]}"
