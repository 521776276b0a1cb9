"""An engine for any causal language model: generates replies token by token with the model's own cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernel_assistant_training.decode import GenerationRequest, Reply
from kernel_assistant_training.ppo.model.actor import Actor

if TYPE_CHECKING:
    from transformers import DynamicCache

#: Bytes for caches on the CPU, and the share of free memory that they take on a GPU.
ROOM, SHARE = 2 << 30, 0.6


class TransformersEngine:
    """Generates with transformers. Decodes at most `rows` prompts together, as memory allows. Each prompt is read
    alone, without padding, so that flash attention can be used; then the caches are joined. If a model's cache has more
    than the keys and values of all tokens (sliding windows, convolutions, states), prompts of equal length are read and
    decoded together instead."""

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
        """Does nothing: caches are freed after each batch."""

    def close(self) -> None:
        """Does nothing: there is nothing to release."""

    def decode(self, asked: Sequence[GenerationRequest]) -> list[Reply]:
        """Returns the replies to the prompts, in the same order."""
        replies: dict[int, Reply] = {}
        for some in self._batches(asked):
            replies |= zip(some, self._together([asked[number] for number in some]), strict=True)
        return [replies[number] for number in range(len(asked))]

    def _batches(self, asked: Sequence[GenerationRequest]) -> Iterator[list[int]]:
        """Yields lists of indices of requests that are decoded together. The prompts of a list have similar lengths, so
        that there is little padding."""
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
        """Returns the number of tokens whose keys and values fit into the free memory."""
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

    def _together(self, asked: Sequence[GenerationRequest]) -> list[Reply]:
        draws = [torch.Generator().manual_seed(one.seed) for one in asked]
        replies: list[tuple[list[int], list[float]]] = [([], []) for _ in asked]
        device = self._actor.device
        with self._actor.generating():
            logits, cache, mask = self._begun([torch.tensor([one.prompt], device=device) for one in asked])
            while True:
                logprobs = logits.float().log_softmax(-1).cpu()
                chosen = [_chosen(*each) for each in zip(logprobs, asked, draws, strict=True)]
                for row, (token, (written, sampled), one) in enumerate(zip(chosen, replies, asked, strict=True)):
                    if not self._ended(written, one):
                        written.append(token)
                        sampled.append(float(logprobs[row, token]))
                if all(self._ended(written, one) for (written, _), one in zip(replies, asked, strict=True)):
                    break
                mask = torch.nn.functional.pad(mask, (0, 1), value=1) if mask is not None else None
                logits, cache = self._read(torch.tensor(chosen, device=device)[:, None], cache, mask)
        return [Reply(written, sampled, written[-1] in self._ends, []) for written, sampled in replies]

    def _begun(self, prompts: Sequence[Tensor]) -> tuple[Tensor, Any, Tensor | None]:
        """Reads prompts of shape (1, T) each. Returns the logits (B, V) of the next tokens, the prompts' joined cache,
        and its attention mask (B, longest). The mask is None if caches cannot be joined; all prompts then have the same
        length."""
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
        """Runs the model on the new tokens `ids` (B, T). Returns the logits (B, V) after the last of them, and the
        cache with the new tokens added. `mask` (B, tokens so far) is needed only if rows are padded."""
        model: Any = self._actor.model
        more: dict[str, Any] = dict(self._last)
        if mask is not None:
            more |= {"attention_mask": mask, "position_ids": (mask.cumsum(1) - 1)[:, -ids.shape[1] :]}
        out = model(ids, past_key_values=cache, use_cache=True, **more)
        return out.logits[:, -1], out.past_key_values

    def _ended(self, written: list[int], one: GenerationRequest) -> bool:
        return len(written) == one.most or (written[-1:] != [] and written[-1] in self._ends)


def _chosen(logprobs: Tensor, one: GenerationRequest, draw: torch.Generator) -> int:
    if one.temperature == 0:
        return int(logprobs.argmax())
    return int(torch.multinomial((logprobs / one.temperature).softmax(-1), 1, generator=draw))


def _joined(caches: Sequence[DynamicCache], longest: int) -> DynamicCache:
    """Returns one cache with the rows of all given caches, padded in front to `longest` tokens. The given caches are
    emptied layer by layer to save memory."""
    from transformers import DynamicCache

    joined = DynamicCache()
    for number in range(len(caches[0].layers)):
        keys, values = [], []
        for cache in caches:
            layer: Any = cache.layers[number]
            pad = (0, 0, longest - layer.keys.shape[-2], 0)
            keys.append(torch.nn.functional.pad(layer.keys, pad))
            values.append(torch.nn.functional.pad(layer.values, pad))
            layer.keys = layer.values = None
        joined.update(torch.cat(keys), torch.cat(values), number)
    return joined
