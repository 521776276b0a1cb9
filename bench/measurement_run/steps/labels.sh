#!/usr/bin/env bash
# Judges the generator's candidates for the tasks of `tasks`, until there are 50,000; one row in a hundred has none.
source "$(dirname "$0")/common.sh"
judges=$(at_least 1 'MEASUREMENT_CORES * 3 / 4')
words=(--candidates 24 --rows-most 51000 --processes $((judges < 12 * MEASUREMENT_GPUS ? judges : 12 * MEASUREMENT_GPUS)))
[[ $size == full ]] || words=(--candidates 4 --tasks-most 5 --processes 1)
exec "$python" -m kernel_assistant_training label --out "$MEASUREMENT_OUT" --tasks "${MEASUREMENT_TASKS:-$results/tasks}" \
  --target "$target" --seconds "$MEASUREMENT_SECONDS" "${words[@]}"
