"""The trained model equals the Llama of transformers, and a conversation sees only its own tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from kernel_assistant_training.architecture import SHIPPED, SMALL, Llama, block_mask, dense_mask
from kernel_assistant_training.folder import load_folder, save_folder

TINY = replace(SMALL, vocabulary=512, width=96, inner=160, layers=2, heads=4, kv_heads=2)


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = Llama(TINY)
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)  # the scales of norms too
    return made.eval()


def logits(model, ids, mask):
    return model.logits(model.hidden(ids, mask))


def test_what_ships_is_small_enough():
    parameters = sum(weight.numel() for weight in Llama(SHIPPED).parameters())
    assert 12_000_000 < parameters <= 14_000_000
    assert parameters * 34 / 32 < 15_000_000  # q8_0: 32 weights share two bytes


def test_transformers_computes_the_same(model, tmp_path):
    save_folder(model, tmp_path, part=200_000)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ours = load_folder(tmp_path)
    ids = torch.randint(0, TINY.vocabulary, (2, 40))
    with torch.no_grad():
        found = logits(ours, ids, dense_mask(torch.zeros(2, 40)))
        expected = theirs(ids).logits
    assert torch.allclose(found, expected, atol=1e-4)
    assert expected.std() > 0.5


def test_conversations_of_a_row_do_not_see_each_other(model):
    first, second = torch.randint(0, TINY.vocabulary, (1, 30)), torch.randint(0, TINY.vocabulary, (1, 50))
    documents = torch.tensor([[1] * 30 + [2] * 50])
    with torch.no_grad():
        together = logits(model, torch.cat([first, second], 1), dense_mask(documents))
        alone = logits(model, second, dense_mask(torch.ones(1, 50)))
    assert torch.allclose(together[:, 30:], alone, atol=1e-4)


def test_blocks_mask_what_the_dense_mask_does(model):
    documents = torch.tensor([[1] * 100 + [2] * 120 + [3] * 36, [1] * 256]).int()
    ids = torch.randint(0, TINY.vocabulary, documents.shape)
    with torch.no_grad():
        dense, blocks = (logits(model, ids, make(documents)) for make in (dense_mask, block_mask))
    assert torch.allclose(dense, blocks, atol=1e-4)
