#!/usr/bin/env bash
# Evaluations a second of one worker, of two, and of one for each GPU. A number that is known is not measured again.
source "$(dirname "$0")/common.sh"
workers=(1 2)
((HOLD_GPUS < 3)) || workers+=("$HOLD_GPUS")
words=(--tasks 10)
[[ $size == full ]] || words=(--tasks 1 --candidates 2)
for number in "${workers[@]}"; do
  file=$HOLD_OUT/pool-$number.json
  [[ -s $file ]] || {
    "$python" -m bench.pool --target "$target" --workers "$number" "${words[@]}" >"$file.new"
    mv "$file.new" "$file"
  }
  cat "$file"
done
