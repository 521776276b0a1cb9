#!/usr/bin/env bash
# Single-turn PPO from the shipped model (or MEASUREMENT_MODEL), on the same tasks of MEASUREMENT_TASKS each time;
# evaluated on held-out tasks before it and during it.
source "$(dirname "$0")/common.sh"
sizes="prompts = 128, episodes = 8, rows = 512, held_out = 110, held_out_episodes = 4, evaluate_every = 5, iterations = 200"
[[ $size == full ]] || sizes="prompts = 2, episodes = 2, rows = 8, held_out = 0, iterations = 1, reply = 32"
cat >"$MEASUREMENT_OUT/recipe.toml" <<END
target = "$target"
base = "${MEASUREMENT_MODEL:-shipped}"

[[stage]]
name = "ppo-single"
limit = $MEASUREMENT_SECONDS
options = { shards = ["${MEASUREMENT_TASKS:-$results/tasks}"], synthesis = 0, reward = "correctness", rate = 1e-4, head_rate = 1e-3, warm_up = 8, lam = 1, baseline = "others", workers = $(at_least 1 'MEASUREMENT_CORES * 5 / 8'), $sizes }

[[stage]]
name = "export"
limit = 30
END
"$python" -m kernel_assistant train --recipe "$MEASUREMENT_OUT/recipe.toml" --out "$MEASUREMENT_OUT/run"
mkdir -p "$MEASUREMENT_WORK/models"
cp "$MEASUREMENT_OUT"/run/*-export/*.gguf "$MEASUREMENT_WORK/models/ppo.gguf"
