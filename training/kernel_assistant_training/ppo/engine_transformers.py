"""Replies of any causal language model, one token after another with the model's own cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import StaticCache

from kernel_assistant_training.decode import Asked, Reply
from kernel_assistant_training.ppo.actor import Actor

#: Tokens of a prompt that go through the model at once.
STRETCH = 4096
#: Bytes of caches at once where no GPU says how many are free, and the share of those that are.
ROOM, SHARE = 2 << 30, 0.6


class TransformersEngine:
    """Rows of like length together, at most `rows`, as many as there is room for. A model that cannot take a static
    cache may keep more than keys and values, which padding would change: its rows are of the same length."""

    def __init__(self, actor: Actor, ends: Sequence[int], *, rows: int) -> None:
        self._actor, self._ends, self._rows = actor, set(ends), rows
        model: Any = actor.model
        self._static = bool(getattr(model, "_can_compile_fullgraph", False))
        self._last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}

    def load(self, actor: Actor) -> None:
        self._actor = actor

    def rest(self) -> None:
        """Caches are given back with each batch."""

    def close(self) -> None:
        """Nothing is held."""

    def decode(self, asked: Sequence[Asked]) -> list[Reply]:
        """In order."""
        found: dict[int, Reply] = {}
        for some in self._batches(asked):
            found |= zip(some, self._together([asked[number] for number in some]), strict=True)
        return [found[number] for number in range(len(asked))]

    def _batches(self, asked: Sequence[Asked]) -> Iterator[list[int]]:
        """Numbers of those that are decoded together; like lengths, so that little is padded."""
        room, batch = self._room(), list[int]()
        for number in sorted(range(len(asked)), key=lambda each: -len(asked[each].prompt)):
            some = [*batch, number]
            first, length = asked[some[0]], len(asked[number].prompt)
            longest = len(first.prompt) + max(asked[each].most for each in some)
            fits = len(some) <= self._rows and longest * len(some) <= room
            if batch and not (fits and (self._static or length == len(first.prompt))):
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch

    def _room(self) -> int:
        """Tokens whose keys and values there is room for."""
        config: Any = self._actor.model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        size = torch.finfo(self._actor.model.dtype).bits // 8
        free = ROOM
        if self._actor.device.type == "cuda":
            torch.cuda.empty_cache()
            free = int(SHARE * torch.cuda.mem_get_info(self._actor.device)[0])
        each: int = 2 * config.num_hidden_layers * heads * width * size
        return max(1, free // each)

    def _together(self, asked: Sequence[Asked]) -> list[Reply]:
        longest, most = max(len(one.prompt) for one in asked), max(one.most for one in asked)
        device = self._actor.device
        ids = torch.tensor([[0] * (longest - len(one.prompt)) + list(one.prompt) for one in asked], device=device)
        there = torch.tensor([[0] * (longest - len(one.prompt)) + [1] * len(one.prompt) for one in asked])
        draws = [torch.Generator().manual_seed(one.seed) for one in asked]
        replies: list[tuple[list[int], list[float]]] = [([], []) for _ in asked]
        with self._actor.generating() as model:
            cache: Any = StaticCache(config=model.config, max_cache_len=longest + most) if self._static else None
            mask = there.to(device) if self._static else None
            for _ in range(most):
                logits, cache = self._next(model, ids, mask, cache)
                logprobs = logits.float().log_softmax(-1).cpu()
                chosen = [_chosen(*each) for each in zip(logprobs, asked, draws, strict=True)]
                for row, (token, (written, said), one) in enumerate(zip(chosen, replies, asked, strict=True)):
                    if not self._ended(written, one):
                        written.append(token)
                        said.append(float(logprobs[row, token]))
                if all(self._ended(written, one) for (written, _), one in zip(replies, asked, strict=True)):
                    break
                ids = torch.tensor(chosen, device=device)[:, None]
                mask = torch.nn.functional.pad(mask, (0, 1), value=1) if mask is not None else None
        return [Reply(written, said, written[-1] in self._ends, []) for written, said in replies]

    def _next(self, model: Any, ids: Tensor, mask: Tensor | None, cache: Any) -> tuple[Tensor, Any]:
        """Logits (B, V) behind the last of `ids` (B, T), which are new; `mask` is of all tokens so far."""
        out: Any
        if mask is None:
            out = model(ids, past_key_values=cache, use_cache=True, **self._last)
            return out.logits[:, -1], out.past_key_values
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        before = mask.shape[1] - ids.shape[1]
        for begin in range(0, ids.shape[1], STRETCH):
            some = ids[:, begin : begin + STRETCH]
            end = before + begin + some.shape[1]
            out = model(
                some,
                attention_mask=mask[:, :end],
                position_ids=positions[:, end - some.shape[1] : end],
                past_key_values=cache,
                use_cache=True,
                **self._last,
            )
        return out.logits[:, -1], cache

    def _ended(self, written: list[int], one: Asked) -> bool:
        return len(written) == one.most or (written[-1:] != [] and written[-1] in self._ends)


def _chosen(logprobs: Tensor, one: Asked, draw: torch.Generator) -> int:
    if one.temperature == 0:
        return int(logprobs.argmax())
    return int(torch.multinomial((logprobs / one.temperature).softmax(-1), 1, generator=draw))
