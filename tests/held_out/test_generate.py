"""Tests the process that generates answers with our decoding loop, and how cores are shared."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace

import msgspec
import pytest
import torch

from bench.held_out import _on_its_own
from bench.held_out_answers import GENERATE
from bench.held_out_judge import Options
from kernel_assistant.errors import UsageError
from kernel_assistant.records.transcript import Message
from kernel_assistant_training.architecture import SMALL, Llama
from kernel_assistant_training.conversation import Encoder
from kernel_assistant_training.decode import Decoder, GenerationRequest
from kernel_assistant_training.folder import load_folder, save_folder
from kernel_assistant_training.tokenizer import load

PROMPTS = [
    (Message(role="system", content="cuda"), Message(role="user", content=f"x0 f32[B,{size}]\nn0 = relu(x0)"))
    for size in (3, 64)
]


@pytest.mark.slow
def test_each_prompt_gets_different_answers_the_greedy_one_first(tmp_path):
    torch.manual_seed(0)
    save_folder(Llama(replace(SMALL, layers=1, width=64, inner=64)), tmp_path)
    asked = {"folder": str(tmp_path), "prompts": msgspec.to_builtins(PROMPTS), "count": 4, "tokens": 12}
    done = subprocess.run(
        [sys.executable, str(GENERATE)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    tokenizer = load(tmp_path)
    encoder = Encoder(tokenizer)
    decoder = Decoder(load_folder(tmp_path), end=-1, rows=2, context=256, device=torch.device("cpu"))
    greedy = decoder.decode([GenerationRequest(encoder.prompt(prompt), temperature=0.0, most=12) for prompt in PROMPTS])
    for answers, reply in zip(said["answers"], greedy, strict=True):
        assert answers[0] == [tokenizer.decode(reply.ids, skip_special_tokens=False), 12]
        assert len({text for text, _ in answers}) == 4
        assert all(1 <= tokens <= 12 for _, tokens in answers)
    assert said["tokens_per_second"] > 0


def test_processes_measure_on_cores_of_their_own_and_build_on_the_rest(tmp_path):
    shares = [Options(target="cpu", out=tmp_path, until=time.monotonic(), part=part) for part in range(3)]
    found = [_on_its_own(share, tuple(range(16)), 4, 3) for share in shares]
    assert [one.cores for one in found] == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)]
    assert {one.builder_cores for one in found} == {(12, 13, 14, 15)} and {one.builders for one in found} == {1}
    with pytest.raises(UsageError, match="3 processes of 6 cores"):
        _on_its_own(shares[0], tuple(range(16)), 6, 3)
