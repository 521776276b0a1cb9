#!/usr/bin/env bash
# The recipe `small`, whole; it goes on where it was ended.
source "$(dirname "$0")/common.sh"
recipe=small
[[ $size == full ]] || recipe=smoke
exec "$python" -m kernel_assistant train --recipe "$recipe" --out "$HOLD_OUT"
