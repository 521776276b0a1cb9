#!/usr/bin/env bash
# Single-turn PPO from the shipped model (or HOLD_MODEL), on the same tasks of HOLD_TASKS each time; held-out ones before
# it and on the way.
source "$(dirname "$0")/common.sh"
base=$(HOLD_MODEL=${HOLD_MODEL:-shipped} "$python" -c '
import os
from pathlib import Path
from kernel_assistant.config import resolve
from kernel_assistant.serving.convert_run import derived_folder
from kernel_assistant.serving.registry import find
settings = resolve()[0]
where = Path(find(os.environ["HOLD_MODEL"], settings).where)
print(where if where.is_dir() else derived_folder(where, settings))')
words=(--prompts 128 --episodes 8 --rows 512 --held-out 110 --held-out-episodes 4 --evaluate-every 5 --iterations 200)
words+=(--workers "$(at_least 1 'HOLD_CORES * 5 / 8')")
[[ $size == full ]] || words=(--prompts 2 --episodes 2 --rows 8 --held-out 0 --iterations 1 --reply 32)
# At its clock it leaves a checkpoint; timeout says 124 of that.
code=0
timeout "$HOLD_SECONDS" "$python" -m kernel_assistant_training ppo_single --base "$base" --out "$HOLD_OUT" \
  --target "$target" --shards "${HOLD_TASKS:-$results/tasks}" --synthesis 0 --reward correctness \
  --rate 1e-4 --head-rate 1e-3 --warm-up 8 --lam 1 --baseline others "${words[@]}" || code=$?
newest=$(find "$HOLD_OUT" -maxdepth 1 -name 'checkpoint-[0-9]*' | sort | tail -n 1)
mkdir -p "$HOLD_WORK/models"
[[ -z $newest ]] || "$python" -m kernel_assistant_training export "$newest" "$HOLD_WORK/models/ppo.gguf"
((code == 124)) || exit "$code"
