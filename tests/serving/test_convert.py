"""A model as GGUF and back: llama.cpp and transformers agree on it, and only the rounding to 8 bits is lost."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from kernel_assistant.errors import UsageError
from kernel_assistant.serving.convert.to_folder import to_folder
from kernel_assistant.serving.convert.to_gguf import to_gguf
from kernel_assistant.serving.convert_run import convert, derived_folder, gguf_info
from kernel_assistant.serving.endpoint import local_engine
from kernel_assistant.serving.llama.embedded import EmbeddedModel, Sampling
from kernel_assistant.serving.registry import find


@pytest.fixture(scope="module")
def back(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("back") / "tiny"
    to_folder(tiny.gguf, folder)
    return folder


def greedy(model, prompt):
    made = model.generate(torch.tensor([prompt]), max_new_tokens=100, do_sample=False)
    return made[0, len(prompt) :].tolist()


def log_probabilities(model, prompt, answer):
    """The log-probabilities of the tokens of `answer`, shape (len(answer),)."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(answer)[:, None])[:, 0]


@pytest.mark.programs
def test_llama_cpp_says_what_transformers_says(tiny, engine, back):
    prompt, answer = tiny.module.conversation_ids(tiny.module.tokenizer())
    reply = EmbeddedModel(engine).complete(tiny.module.QUESTION, Sampling(temperature=0.0))
    assert reply.content == tiny.module.ANSWER
    restored = AutoModelForCausalLM.from_pretrained(back).eval()
    assert greedy(tiny.model, prompt) == greedy(restored, prompt) == answer
    assert list(reply.token_ids) == answer
    expected = log_probabilities(restored, prompt, answer)
    # llama.cpp rounds activations to 8 bits as well.
    assert torch.allclose(torch.tensor(reply.logprobs), expected, atol=0.02)


def test_random_weights_agree_as_well(tiny, tmp_path, settings):
    """Agreement on a trained answer is easy; agreement on sampled tokens of an untrained model is not."""
    torch.manual_seed(1)
    model = type(tiny.model)(tiny.model.config).eval()
    model.save_pretrained(tmp_path / "random")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tiny.folder / name, tmp_path / "random")
    to_gguf(tmp_path / "random", tmp_path / "random.gguf")
    engine = local_engine(find(str(tmp_path / "random.gguf"), settings), settings)
    try:
        reply = EmbeddedModel(engine).complete(tiny.module.QUESTION, Sampling(max_tokens=40, seed=3))
    finally:
        engine.stop()
    prompt, _ = tiny.module.conversation_ids(tiny.module.tokenizer())
    expected = log_probabilities(model, prompt, list(reply.token_ids))
    assert len(set(reply.token_ids)) > 10
    assert torch.allclose(torch.tensor(reply.logprobs), expected, atol=0.05)


def test_weights_come_back_within_the_error_of_8_bits(tiny, back):
    before, after = load_file(tiny.folder / "model.safetensors"), load_file(back / "model.safetensors")
    assert before.keys() == after.keys()
    for name, weight in before.items():
        if weight.ndim == 1:
            assert np.array_equal(weight, after[name])
            continue
        blocks = weight.reshape(-1, 32)
        step = np.abs(blocks).max(axis=1, keepdims=True) / 127
        # Half a step by rounding, and the step itself is a float16.
        allowed = step * 0.5 + np.abs(blocks) * 2.0**-10
        assert (np.abs(blocks - after[name].reshape(-1, 32)) <= allowed).all(), name


def test_a_second_round_trip_loses_next_to_nothing(back, tmp_path):
    to_gguf(back, tmp_path / "again.gguf")
    to_folder(tmp_path / "again.gguf", tmp_path / "again")
    first, second = load_file(back / "model.safetensors"), load_file(tmp_path / "again" / "model.safetensors")
    assert all(np.allclose(first[name], second[name], rtol=2e-3, atol=1e-6) for name in first)


def test_tokenizer_comes_back(tiny, back):
    before, after = AutoTokenizer.from_pretrained(tiny.folder), AutoTokenizer.from_pretrained(back)
    odd = "a  b\n\n\n  c\t— größe 1234 <|im_start|>user\n<tool_call>{}</tool_call>"
    for text in (tiny.module.ANSWER, odd, "\x00\xff emoji 🙂"):
        ids = before(text, add_special_tokens=False)["input_ids"]
        assert after(text, add_special_tokens=False)["input_ids"] == ids
        assert after.decode(ids) == text
    assert (after.eos_token_id, after.pad_token_id) == (before.eos_token_id, before.pad_token_id)
    assert "endgeneration" in before.chat_template and "endgeneration" not in after.chat_template


def test_digits_apart(tiny, tmp_path):
    """The other known way to split text."""
    folder = shutil.copytree(tiny.folder, tmp_path / "digits")
    document = json.loads((folder / "tokenizer.json").read_text())
    parts = [{"type": "Digits", "individual_digits": True}, document["pre_tokenizer"]]
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": parts}
    (folder / "tokenizer.json").write_text(json.dumps(document))
    to_gguf(folder, tmp_path / "digits.gguf")
    to_folder(tmp_path / "digits.gguf", tmp_path / "back")
    before, after = AutoTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(tmp_path / "back")
    text = "block=256 64 x"
    assert before(text)["input_ids"] == after(text)["input_ids"]
    assert before(text)["input_ids"] != AutoTokenizer.from_pretrained(tiny.folder)(text)["input_ids"]


def test_bfloat16_folder(tiny, tmp_path):
    folder = shutil.copytree(tiny.folder, tmp_path / "half")
    tiny.model.to(torch.bfloat16).save_pretrained(folder)
    tiny.model.to(torch.float32)
    to_gguf(folder, tmp_path / "half.gguf")
    to_folder(tmp_path / "half.gguf", tmp_path / "back")
    norm = load_file(tmp_path / "back" / "model.safetensors")["model.norm.weight"]
    assert np.array_equal(norm, tiny.model.model.norm.weight.detach().bfloat16().float().numpy())


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"model_type": "qwen2"}, "model_type 'qwen2'"),
        ({"attention_bias": True}, "with biases"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type 'yarn'"),
        ({"vocab_size": 100}, "its ids are not 0 … 99"),
    ],
)
def test_what_is_not_a_plain_llama_is_refused(tiny, tmp_path, change, cause):
    folder = shutil.copytree(tiny.folder, tmp_path / "odd")
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=cause):
        to_gguf(folder, tmp_path / "odd.gguf")


def test_unknown_tensors_are_refused(tiny, tmp_path):
    folder = shutil.copytree(tiny.folder, tmp_path / "odd")
    weights = load_file(folder / "model.safetensors") | {"model.extra.weight": np.zeros(4, np.float32)}
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(UsageError, match=r"model\.extra\.weight"):
        to_gguf(folder, tmp_path / "odd.gguf")


def test_no_gguf_is_said_in_one_line(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"PK\x03\x04 a zip" * 100)
    with pytest.raises(UsageError, match="is not a GGUF file") as caught:
        convert("info", tmp_path / "x.gguf")
    assert "\n" not in caught.value.cause and caught.value.next_step


def test_derived_folder_is_made_once(tiny, settings):
    first = derived_folder(tiny.gguf, settings)
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    assert derived_folder(tiny.gguf, settings) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == stamp
    assert [entry.name for entry in first.parent.iterdir()] == [first.name]


def test_info(tiny):
    info = gguf_info(tiny.gguf)
    assert info["parameters"] == tiny.model.num_parameters()
    assert (info["architecture"], info["weights"], info["kv_heads"]) == ("llama", ["F32", "Q8_0"], 2)
