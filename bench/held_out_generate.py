"""Answers of a model by transformers, many at once: JSON comes on standard input and goes to standard output.

A process of its own, started by `held_out_answers.py`. Needs torch and transformers.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "training")]

import torch  # noqa: E402 - after the path, like everything below
from transformers import AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList  # noqa: E402

from kernel_assistant.records.transcript import Message  # noqa: E402
from kernel_assistant_training.conversation import Encoder  # noqa: E402
from kernel_assistant_training.tokenizer import load  # noqa: E402

#: Sequences of one batch.
BATCH = {"cuda": 4096, "cpu": 32}


def main() -> None:
    asked = json.load(sys.stdin)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = Path(asked["folder"])
    tokenizer = load(folder)
    encoder = Encoder(tokenizer)
    prompts = [encoder.prompt([Message(**message) for message in prompt]) for prompt in asked["prompts"]]
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model.to(device).eval()
    torch.manual_seed(0)
    found: list[list[list[int]]] = [[] for _ in prompts]
    began = time.monotonic()
    wanted = [(place, number) for place in range(len(prompts)) for number in range(asked["count"])]
    # Prompts of one length together: a batch is as wide as its longest.
    wanted.sort(key=lambda one: len(prompts[one[0]]))
    for start in range(0, len(wanted), BATCH[device.type]):
        batch = wanted[start : start + BATCH[device.type]]
        temperatures = torch.tensor([asked["temperatures"][number > 0] for _, number in batch], device=device)
        made = _generate(model, [prompts[place] for place, _ in batch], asked["tokens"], temperatures)
        for (place, _), ids in zip(batch, made, strict=True):
            found[place].append(ids)
    tokens = sum(len(ids) for each in found for ids in each)
    seconds = time.monotonic() - began
    answers = [
        [[tokenizer.decode(_said(ids, model), skip_special_tokens=False), len(ids)] for ids in each] for each in found
    ]
    json.dump({"answers": answers, "tokens_per_second": tokens / seconds}, sys.stdout)


class Temperatures(LogitsProcessor):
    """One for each row; 0 leaves only the likeliest token."""

    def __init__(self, temperatures: torch.Tensor) -> None:
        self._greedy = temperatures[:, None] == 0
        self._divisors = temperatures[:, None].clamp(min=1e-3)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        likeliest = scores == scores.max(-1, keepdim=True).values
        return torch.where(self._greedy, torch.where(likeliest, scores, -torch.inf), scores / self._divisors)


def _generate(model: Any, prompts: Sequence[list[int]], most: int, temperatures: torch.Tensor) -> list[list[int]]:
    """Tokens of each answer, with the one that ends it. Prompts are filled up on the left."""
    longest, filler, end = max(map(len, prompts)), model.config.pad_token_id, model.config.eos_token_id
    ids = torch.tensor([[filler] * (longest - len(one)) + one for one in prompts], device=model.device)
    shown = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in prompts], device=model.device)
    with torch.inference_mode():
        made = model.generate(
            ids,
            attention_mask=shown,
            max_new_tokens=most,
            do_sample=True,
            top_k=0,
            top_p=1.0,
            logits_processor=LogitsProcessorList([Temperatures(temperatures)]),
        )
    rows = made[:, longest:].tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in rows]


def _said(ids: list[int], model: Any) -> list[int]:
    return ids[:-1] if ids and ids[-1] == model.config.eos_token_id else ids


if __name__ == "__main__":
    main()
