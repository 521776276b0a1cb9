"""A Llama of some hundred thousand weights that has learned one conversation by heart, made in seconds.

It is the smallest complete model: its greedy answer is known, its margins are wide enough for 8 bits, and it calls a
tool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from kernel_assistant.records.transcript import Message
from kernel_assistant.serving.template import CONTROL_TOKENS, MARKER_TOKENS, TRAINING_TEMPLATE, render, write_call
from tests.common.threads import one_thread

QUESTION = (
    Message(role="system", content="You write kernels."),
    Message(role="user", content="rows=8 softmax over 64"),
)
ANSWER = "plan: reg block=256 vec=4\n```cuda\nfloat a = row[i];\n```\n" + write_call("evaluate", '{"tier": "quick"}')
_TIER = {"type": "string", "enum": ["quick", "full"]}
_FIELDS = {"type": "object", "properties": {"tier": _TIER}, "required": ["tier"], "additionalProperties": False}
_EVALUATE = {"name": "evaluate", "description": "Run it.", "parameters": _FIELDS}
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": _EVALUATE}]


#: Tokens.
VOCABULARY = 317
#: Rows of a step.
_AT_ONCE = 8


@dataclass(frozen=True)
class Lesson:
    """The reply that the model learns after `messages`."""

    messages: tuple[Message, ...]
    answer: str
    tools: Sequence[Any] = ()

    @property
    def prompt(self) -> str:
        return render(self.messages, tools=self.tools)


LESSONS = (Lesson(QUESTION, ANSWER), Lesson(QUESTION, ANSWER, TOOLS))


def tokenizer(
    texts: Sequence[str] = (render(QUESTION), ANSWER), vocabulary: int = VOCABULARY
) -> PreTrainedTokenizerFast:
    """A byte-level BPE vocabulary."""
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    plain.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(MARKER_TOKENS),
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator([*texts] * 4, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=512
    )
    fast.add_tokens(list(MARKER_TOKENS))
    fast.chat_template = TRAINING_TEMPLATE
    return fast


@dataclass(frozen=True)
class Size:
    """`heads` have `head_width` channels each, two of them share a key."""

    width: int = 96
    inner: int = 192
    layers: int = 2
    heads: int = 4
    head_width: int = 64
    context: int = 512
    vocabulary: int = VOCABULARY


TEN_MILLION = Size(width=384, inner=1024, layers=6, heads=6, head_width=64, context=4096)


def make(
    folder: Path,
    size: Size | None = None,
    *,
    steps: int = 110,
    device: str = "cpu",
    lessons: Sequence[Lesson] = LESSONS,
) -> LlamaForCausalLM:
    """Trains and saves a model; returns it in float32. It has grouped queries, a tied embedding, and a vocabulary with
    spare ids.
    """
    size = size or Size()
    torch.manual_seed(0)
    texts = dict.fromkeys(text for each in lessons for text in (render(each.messages), each.answer))
    words = tokenizer(list(texts), size.vocabulary)
    config = LlamaConfig(
        vocab_size=size.vocabulary + 35,
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads // 2,
        head_dim=size.head_width,
        max_position_embeddings=size.context,
        rope_parameters={"rope_type": "default", "rope_theta": 50000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    model = LlamaForCausalLM(config).to(device)
    _learn(model, [_ids(words, lesson) for lesson in lessons], steps)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return model.eval()


def conversation_ids(words: PreTrainedTokenizerFast, tools: Sequence[Any] = ()) -> tuple[list[int], list[int]]:
    """The prompt and the answer as tokens, the answer with its end token."""
    return _ids(words, Lesson(QUESTION, ANSWER, tools))


def _ids(words: PreTrainedTokenizerFast, lesson: Lesson) -> tuple[list[int], list[int]]:
    prompt = words(lesson.prompt, add_special_tokens=False)["input_ids"]
    answer = words(lesson.answer + "<|im_end|>", add_special_tokens=False)["input_ids"]
    return prompt, answer


@one_thread()
def _learn(model: LlamaForCausalLM, conversations: list[tuple[list[int], list[int]]], steps: int) -> None:
    longest = max(len(prompt + answer) for prompt, answer in conversations)
    ids = torch.zeros(len(conversations), longest, dtype=torch.long)
    labels = torch.full_like(ids, -100)
    for row, (prompt, answer) in enumerate(conversations):
        end = len(prompt + answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : end] = ids[row, len(prompt) : end]
    ids, labels = ids.to(model.device), labels.to(model.device)
    rate = 3e-3 if model.config.hidden_size < 200 else 1e-3
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    for step in range(steps):
        rows = [(step * _AT_ONCE + place) % len(ids) for place in range(min(_AT_ONCE, len(ids)))]
        loss = model(input_ids=ids[rows], labels=labels[rows]).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
