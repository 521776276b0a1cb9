#!/usr/bin/env bash
# The recipe `small` (HOLD_RECIPE: another one, or a file), whole; it goes on where it was ended.
source "$(dirname "$0")/common.sh"
recipe=${HOLD_RECIPE:-small}
[[ $size == full ]] || recipe=smoke
exec "$python" -m kernel_assistant train --recipe "$recipe" --out "$HOLD_OUT"
