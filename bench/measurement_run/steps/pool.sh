#!/usr/bin/env bash
# Evaluations per second with one worker, two, and one for each GPU. Numbers that are known are not measured again.
source "$(dirname "$0")/common.sh"
workers=(1 2)
((MEASUREMENT_GPUS < 3)) || workers+=("$MEASUREMENT_GPUS")
words=(--tasks 10)
[[ $size == full ]] || words=(--tasks 1 --candidates 2)
for number in "${workers[@]}"; do
  file=$MEASUREMENT_OUT/pool-$number.json
  [[ -s $file ]] || {
    "$python" -m bench.pool --target "$target" --workers "$number" "${words[@]}" >"$file.new"
    mv "$file.new" "$file"
  }
  cat "$file"
done
