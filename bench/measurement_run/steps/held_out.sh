#!/usr/bin/env bash
# Judges a model on held-out tasks: MEASUREMENT_MODEL, else the one that `small` exported, else the newest of `small`.
source "$(dirname "$0")/common.sh"
model=${MEASUREMENT_MODEL:-}
shopt -s nullglob
# Names begin with the position in the recipe, so the last one is the newest.
for candidate in "$results"/small/*-pretrain/model "$results"/small/*-sft \
  "$results"/small/*-ppo-*/checkpoint-[0-9][0-9][0-9][0-9][0-9][0-9] "$results"/small/*-export/*.gguf; do
  [[ -n ${MEASUREMENT_MODEL:-} ]] || [[ ! -f $candidate && ! -f $candidate/config.json ]] || model=$candidate
done
[[ -n $model ]] || {
  echo "no model: run the step small before, or name one: MEASUREMENT_MODEL=FILE" >&2
  exit 3
}
echo "model: $model"
words=(--tasks 200 --thorough "${MEASUREMENT_THOROUGH:-16}" --compile)
[[ $size == full ]] || words=(--tasks 4 --attempts 2 --thorough 1)
exec "$python" bench/held_out.py --target "$target" --model "$model" --out "$MEASUREMENT_OUT" \
  --seconds "$MEASUREMENT_SECONDS" "${words[@]}"
