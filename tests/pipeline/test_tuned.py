"""Fine-tuning of models of other families, and the export of models with adapters."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from kernel_assistant_training.conversation import Tokens
from kernel_assistant_training.options.stages import RftArguments
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.model.base import ADAPTER
from kernel_assistant_training.stages.export import as_folder
from kernel_assistant_training.stages.fine_tuning import fit
from tests.base.models import save
from tests.ppo.conftest import on_one_thread  # noqa: F401 - a fixture for every test here

ROWS = [Tokens([5, 6, 7, 8, 9, 10], [False, False, True, True, True, True])] * 8


def options(base, out, **rest):
    asked = {"base": base, "out": out, "trainer": "transformers", "epochs": 4.0, "steps": -1, "seconds": 0.0}
    more = {"batch": 4, "accumulate": 1, "rate": 1e-2, "seed": 0, "checkpoint_seconds": 60.0, "lora": 0}
    return RftArguments(**{**asked, **more, **rest})


def loss(model):
    ids = torch.tensor([ROWS[0].ids])
    with torch.inference_mode():
        return float(model(input_ids=ids, labels=torch.where(ids < 7, -100, ids)).loss)


def logits(model):
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ROWS[0].ids])).logits.float()


@pytest.mark.slow
@pytest.mark.parametrize("lora", [0, 4])
def test_another_family_learns_and_is_saved_in_its_own_form(tmp_path, lora):
    base = save("qwen2", tmp_path / "base")
    (base / "figures.json").write_text("{}")  # of the stage that made it: nobody is done by it
    figures = fit(options(base, tmp_path / "out", lora=lora), ROWS, "rft")
    assert figures["steps"] == 8
    device = torch.device("cpu")
    before, after = (Actor.load(folder, device).model for folder in (base, tmp_path / "out"))
    assert loss(after) < loss(before) - 1
    assert (tmp_path / "out" / ADAPTER).is_dir() == bool(lora)
    assert json.loads((tmp_path / "out" / "figures.json").read_text()) == figures
    exported = as_folder(tmp_path / "out", tmp_path / "exported" / "model")
    assert exported["merged"] == bool(lora)
    shipped = AutoModelForCausalLM.from_pretrained(tmp_path / "exported" / "model", dtype=torch.float32)
    # Weights are in bfloat16 there.
    assert torch.allclose(logits(shipped), logits(after), atol=0.15)
    assert not torch.allclose(logits(before), logits(after), atol=0.5)
    assert {file.name for file in (tmp_path / "exported" / "model").iterdir()} >= {"config.json", "tokenizer.json"}
