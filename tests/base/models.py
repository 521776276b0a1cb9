"""Small random models of many families, as folders, with a vocabulary and a template of their own."""

from __future__ import annotations

import json

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers import models as kinds
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY = 384
SIZE = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
GATED = {**SIZE, "intermediate_size": 48, "num_key_value_heads": 2}
#: What differs where logits are made: tied, scaled, capped, with dropout, a bias, experts, no attention in some layers.
FAMILIES = {
    "llama": {**GATED, "head_dim": 8},
    "qwen2": {**GATED, "tie_word_embeddings": True},
    "gemma2": {**GATED, "head_dim": 8, "final_logit_softcapping": 0.5, "attn_logit_softcapping": 20.0},
    "cohere": {**GATED, "logit_scale": 0.25},
    "granite": {**GATED, "logits_scaling": 8.0},
    "gpt2": {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.5},
    "mixtral": {**GATED, "head_dim": 8, "num_local_experts": 4},
    "lfm2": {**GATED, "layer_types": ["conv", "full_attention"]},
}
#: In the manner of Llama 3: another order of marks than ours, and contents trimmed.
TEMPLATE = (
    "<|begin|>{% for message in messages %}<|head|>{{ message['role'] }}<|/head|>\n\n{{ message['content'] | trim }}"
    "<|eot|>{% endfor %}{% if add_generation_prompt %}<|head|>assistant<|/head|>\n\n{% endif %}"
)
MARKS = ["<|begin|>", "<|head|>", "<|/head|>", "<|eot|>", "<|eos|>"]
TEXT = ["def forward(self, x): return torch.relu(x + 1)", '{"name": "read_file", "arguments": {"path": "a.cu"}}']


def family(kind, seed=0, scale=0.3):
    """The weights are larger than those that transformers initialises, so that probabilities differ."""
    torch.manual_seed(seed)
    special = {"bos_token_id": 256, "eos_token_id": 260, "pad_token_id": 260}
    shape = AutoConfig.for_model(kind, **FAMILIES[kind], max_position_embeddings=4096, **special)
    model = AutoModelForCausalLM.from_config(shape)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * scale)
    return model


def save(kind, folder, template=TEMPLATE, **options):
    family(kind, **options).save_pretrained(folder)
    vocabulary(folder, template)
    return folder


def vocabulary(folder, template=TEMPLATE, size=VOCABULARY, texts=TEXT):
    """A vocabulary of bytes, words of the texts, and the marks of the template."""
    tokenizer = Tokenizer(kinds.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size - len(MARKS), initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(MARKS)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": MARKS[0], "eos_token": MARKS[4]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if template:
        (folder / "chat_template.jinja").write_text(template)
    return tokenizer
