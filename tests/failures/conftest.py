"""A small model, its episodes, and folders of runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from kernel_assistant_training.architecture import SMALL, Llama
from kernel_assistant_training.folder import load_folder, save_folder
from kernel_assistant_training.tokenizer import load, vocabulary_size


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    shape = replace(SMALL, vocabulary=vocabulary_size(load()), width=64, inner=64, layers=1, heads=1)
    save_folder(Llama(shape), folder)
    return folder


@pytest.fixture(scope="session")
def poisoned(base, tmp_path_factory):
    """A model that has a weight which is not finite."""
    folder, model = tmp_path_factory.mktemp("poisoned"), load_folder(base)
    with torch.no_grad():
        model.model.norm.weight[3] = float("nan")
    save_folder(model, folder)
    return folder


@pytest.fixture(scope="session")
def episodes(tmp_path_factory):
    """As many different episodes as steps."""
    file = tmp_path_factory.mktemp("episodes") / "episodes.jsonl"
    with file.open("w") as lines:
        for number in range(40):
            asked = f"n0 = relu(x0)\nB={number}" + " f" * (number % 7)
            said = {"system": "C++.", "user": asked, "assistant": f"```cpp\nright({number});\n```\n"}
            messages = [{"role": role, "content": content} for role, content in said.items()]
            lines.write(json.dumps({"messages": messages}) + "\n")
    return file
