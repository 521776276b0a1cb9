"""Replies of any causal language model, one token after another with the model's own cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernel_assistant_training.decode import Asked, Reply
from kernel_assistant_training.ppo.actor import Actor

if TYPE_CHECKING:
    from transformers import DynamicCache

#: Bytes of caches at once where no GPU says how many are free, and the share of those that are.
ROOM, SHARE = 2 << 30, 0.6


class TransformersEngine:
    """At most `rows` together, as many as there is room for. Each prompt goes through alone, without padding, so that a
    flash kernel takes it; then the caches are put together. A model that keeps more than keys and values of all tokens
    (sliding windows, convolutions, states) decodes prompts of the same length together instead."""

    def __init__(self, actor: Actor, ends: Sequence[int], *, rows: int) -> None:
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer

        self._actor, self._ends, self._rows = actor, set(ends), rows
        model: Any = actor.model
        self._last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
        with actor.generating():
            _, cache = self._read(torch.zeros((1, 2), dtype=torch.long, device=actor.device), None)
        self._joins = isinstance(cache, DynamicCache) and all(type(layer) is DynamicLayer for layer in cache.layers)

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
            if batch and not (fits and (self._joins or length == len(first.prompt))):
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
        draws = [torch.Generator().manual_seed(one.seed) for one in asked]
        replies: list[tuple[list[int], list[float]]] = [([], []) for _ in asked]
        device = self._actor.device
        with self._actor.generating():
            logits, cache, mask = self._begun([torch.tensor([one.prompt], device=device) for one in asked])
            while True:
                logprobs = logits.float().log_softmax(-1).cpu()
                chosen = [_chosen(*each) for each in zip(logprobs, asked, draws, strict=True)]
                for row, (token, (written, said), one) in enumerate(zip(chosen, replies, asked, strict=True)):
                    if not self._ended(written, one):
                        written.append(token)
                        said.append(float(logprobs[row, token]))
                if all(self._ended(written, one) for (written, _), one in zip(replies, asked, strict=True)):
                    break
                mask = torch.nn.functional.pad(mask, (0, 1), value=1) if mask is not None else None
                logits, cache = self._read(torch.tensor(chosen, device=device)[:, None], cache, mask)
        return [Reply(written, said, written[-1] in self._ends, []) for written, said in replies]

    def _begun(self, prompts: Sequence[Tensor]) -> tuple[Tensor, Any, Tensor | None]:
        """Logits (B, V) behind prompts (1, T) each, their cache, and where it is theirs (B, longest), None if it all
        is."""
        if not self._joins:
            return *self._read(torch.cat(list(prompts)), None), None
        longest = max(prompt.shape[1] for prompt in prompts)
        logits, caches, masks = [], [], []
        for prompt in prompts:
            some, cache = self._read(prompt, None)
            logits.append(some)
            caches.append(cache)
            masks.append(torch.nn.functional.pad(torch.ones_like(prompt), (longest - prompt.shape[1], 0)))
        return torch.cat(logits), _joined(caches, longest), torch.cat(masks)

    def _read(self, ids: Tensor, cache: Any, mask: Tensor | None = None) -> tuple[Tensor, Any]:
        """Logits (B, V) behind the last of `ids` (B, T), which are new; `mask` is of all tokens so far."""
        model: Any = self._actor.model
        more: dict[str, Any] = dict(self._last)
        if mask is not None:
            more |= {"attention_mask": mask, "position_ids": (mask.cumsum(1) - 1)[:, -ids.shape[1] :]}
        out = model(ids, past_key_values=cache, use_cache=True, **more)
        return out.logits[:, -1], out.past_key_values

    def _ended(self, written: list[int], one: Asked) -> bool:
        return len(written) == one.most or (written[-1:] != [] and written[-1] in self._ends)


def _chosen(logprobs: Tensor, one: Asked, draw: torch.Generator) -> int:
    if one.temperature == 0:
        return int(logprobs.argmax())
    return int(torch.multinomial((logprobs / one.temperature).softmax(-1), 1, generator=draw))


def _joined(caches: Sequence[DynamicCache], longest: int) -> DynamicCache:
    """One cache of all rows, filled up in front. Those that are given are emptied layer by layer."""
    from transformers import DynamicCache

    found = DynamicCache()
    for number in range(len(caches[0].layers)):
        keys, values = [], []
        for cache in caches:
            layer: Any = cache.layers[number]
            pad = (0, 0, longest - layer.keys.shape[-2], 0)
            keys.append(torch.nn.functional.pad(layer.keys, pad))
            values.append(torch.nn.functional.pad(layer.values, pad))
            layer.keys = layer.values = None
        found.update(torch.cat(keys), torch.cat(values), number)
    return found
