"""Tests that an update by two processes equals the update by one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.model.process_group import ProcessGroup
from kernel_assistant_training.ppo.store import TrajectoryStore
from tests.base.models import save
from tests.base.updates import KINDS, update
from tests.ppo.trajectories import several

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parent / "updates.py"
#: What `accelerate launch` starts for several GPUs; without any it starts one process.
LAUNCHED = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "0", "--standalone"]


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A base model with trajectories that it sampled."""
    folder = tmp_path_factory.mktemp("given")
    base = save("llama", folder / "base")
    store = TrajectoryStore(folder)
    for one in several(Actor.load(base, torch.device("cpu")), 9):
        store.add(one)
    store.close()
    return base, folder


def launch(*words):
    """Runs two processes."""
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    argv = [sys.executable, *LAUNCHED, *map(str, words)]
    done = subprocess.run(argv, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def both(given, tmp_path_factory):
    out = tmp_path_factory.mktemp("both")
    launch(PROGRAM, *given, out)
    return out


@pytest.fixture(scope="module")
def alone(given, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone")
    for kind in ("all", "lora"):
        update(*given, out / kind, kind, ProcessGroup(device=torch.device("cpu")))
    return out


def read(out):
    weights = {}
    for file in sorted(out.rglob("*.safetensors")):
        weights |= load_file(file)
    return weights, json.loads((out / "figures.json").read_text())


@pytest.mark.learns
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_give_the_weights_of_one(alone, both, kind):
    mine = alone / ("all" if kind == "shard" else kind)
    weights, (one, *figures) = read(mine)
    found, (two, *others) = read(both / kind)
    assert (one, two) == (1, 2) and weights.keys() == found.keys()
    for name, weight in weights.items():
        # Adapters are kept in float32; the others may differ by one step of bfloat16.
        allowed = 1e-4 if weight.dtype == torch.float32 else 0.01
        assert torch.allclose(found[name].float(), weight.float(), rtol=allowed, atol=1e-4), name
    for ours, theirs in zip(figures, others, strict=True):
        assert theirs == pytest.approx(ours, rel=1e-3, abs=1e-4)
    assert figures[0]["optimiser_steps"] == 4
    if kind == "lora":
        one, two = (json.loads((out / "replies.json").read_text()) for out in (mine, both / kind))
        assert one == two and len(one) == 5
