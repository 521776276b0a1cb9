"""Answers that are generated in a batch equal those that transformers generates one by one, in any row."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from kernel_assistant_training.architecture import SMALL, Llama
from kernel_assistant_training.decode import Decoder, GenerationRequest
from kernel_assistant_training.folder import load_folder, save_folder

TINY = replace(SMALL, vocabulary=64, width=96, inner=160, layers=2, heads=4, kv_heads=2, head_width=32, context=512)
END = 7
GREEDY = {"do_sample": False, "eos_token_id": END, "pad_token_id": 0}
GREEDY |= {"output_logits": True, "return_dict_in_generate": True}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    made = Llama(TINY)
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    where = tmp_path_factory.mktemp("model")
    save_folder(made, where)
    return where


def prompts(count):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(8, 64, (3 + 5 * number % 31,), generator=generator).tolist() for number in range(count)]


def test_the_likeliest_tokens_and_their_probabilities_are_those_of_transformers(folder):
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    decoder = Decoder(load_folder(folder), END, rows=4, context=300, device=CPU, width=3)
    asked = [GenerationRequest(prompt, temperature=0.0, most=5 + 4 * n) for n, prompt in enumerate(prompts(11))]
    found = decoder.decode(asked)
    for one, reply in zip(asked, found, strict=True):
        ids = torch.tensor([list(one.prompt)])
        with torch.no_grad():
            made = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=one.most, **GREEDY)
        assert reply.ids == made.sequences[0, ids.shape[1] :].tolist()
        assert reply.ended == (reply.ids[-1] == END)
        expected = [float(step[0].log_softmax(-1)[number]) for step, number in zip(made.logits, reply.ids, strict=True)]
        assert reply.logprobs == pytest.approx(expected, abs=1e-3)
        likeliest = [step[0].log_softmax(-1).topk(3) for step in made.logits]
        tokens = [[token for token, _ in others] for others in reply.others]
        assert tokens == [one.indices.tolist() for one in likeliest]
        assert [said for _, said in reply.others[-1]] == pytest.approx(likeliest[-1].values.tolist(), abs=1e-3)
    assert {reply.ended for reply in found} == {True, False}


def test_a_seed_gives_the_same_answer_in_whatever_company(folder):
    decoder = Decoder(load_folder(folder), END, rows=8, context=256, device=CPU)
    asked = [GenerationRequest(prompt, seed=number, most=25) for number, prompt in enumerate(prompts(12))]
    together = decoder.decode(asked)
    assert [decoder.decode([one])[0].ids for one in asked] == [reply.ids for reply in together]
    other = decoder.decode([replace(one, seed=one.seed + 100) for one in asked])
    assert all(mine.ids != reply.ids for mine, reply in zip(other, together, strict=True))


def test_what_is_sampled_has_the_distribution_of_the_temperature(folder):
    """The first token after a prompt, sampled a thousand times, compared with the softmax."""
    model = load_folder(folder)
    (prompt,) = prompts(1)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = theirs(torch.tensor([prompt])).logits[0, -1]
    decoder = Decoder(model, END, rows=256, context=64, device=CPU)
    for temperature in (1.0, 0.5):
        asked = [GenerationRequest(prompt, temperature, seed, most=1) for seed in range(1024)]
        counts = Counter(reply.ids[0] for reply in decoder.decode(asked))
        expected = (logits / temperature).softmax(-1) * len(asked)
        found = torch.tensor([counts[token] for token in range(TINY.vocabulary)])
        # Of chi square with 63 degrees of freedom, five standard deviations over the mean.
        assert ((found - expected).square() / expected).sum() < 63 + 5 * (2 * 63) ** 0.5
        assert expected.max() < 0.9 * len(asked)


def test_what_is_too_long_is_refused(folder):
    decoder = Decoder(load_folder(folder), END, rows=2, context=100, device=CPU)
    with pytest.raises(ValueError, match="more than 256 tokens"):
        decoder.decode([GenerationRequest([1] * 200, most=57)])
