#!/usr/bin/env bash
# What `small` exported, else the newest model that it has (or HOLD_MODEL), on tasks that training never shows.
source "$(dirname "$0")/common.sh"
model=${HOLD_MODEL:-}
shopt -s nullglob
# Names begin with the place in the recipe: the last one is the newest.
for found in "$results"/small/*-pretrain/model "$results"/small/*-sft \
  "$results"/small/*-ppo-*/checkpoint-[0-9][0-9][0-9][0-9][0-9][0-9] "$results"/small/*-export/*.gguf; do
  [[ -n ${HOLD_MODEL:-} ]] || [[ ! -f $found && ! -f $found/config.json ]] || model=$found
done
[[ -n $model ]] || {
  echo "no model: run the step small before, or name one: HOLD_MODEL=FILE" >&2
  exit 3
}
echo "model: $model"
words=(--tasks 200 --thorough "${HOLD_THOROUGH:-16}" --compile)
[[ $size == full ]] || words=(--tasks 4 --attempts 2 --thorough 1)
exec "$python" bench/held_out.py --target "$target" --model "$model" --out "$HOLD_OUT" \
  --seconds "$HOLD_SECONDS" "${words[@]}"
