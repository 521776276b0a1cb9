#!/usr/bin/env bash
# The recipe `small` (MEASUREMENT_RECIPE: another one, or a file), whole; it continues where it was stopped.
source "$(dirname "$0")/common.sh"
recipe=${MEASUREMENT_RECIPE:-small}
[[ $size == full ]] || recipe=smoke
exec "$python" -m kernel_assistant train --recipe "$recipe" --out "$MEASUREMENT_OUT"
