"""Who generates: the decoding loop with the actor's weights, or transformers for models that it cannot run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from kernel_assistant.errors import UsageError
from kernel_assistant.serving.convert.shape import from_config
from kernel_assistant_training.architecture import Llama
from kernel_assistant_training.decode import Asked, Decoder, Reply
from kernel_assistant_training.ppo.actor import Actor


class Engine(Protocol):
    def load(self, actor: Actor) -> None:
        """Other weights of the same model."""

    def decode(self, asked: Sequence[Asked]) -> list[Reply]: ...


class DecoderEngine:
    """The decoding loop (`decode.py`) for Llamas with tied embeddings; weights go over in memory."""

    def __init__(self, actor: Actor, end: int, *, rows: int, context: int) -> None:
        self._llama = Llama(from_config(_config(actor))).to(actor.device)
        self._copy(actor)
        self._decoder = Decoder(self._llama, end, rows=rows, context=context, device=actor.device)

    def load(self, actor: Actor) -> None:
        self._copy(actor)
        self._decoder.load(self._llama)

    def decode(self, asked: Sequence[Asked]) -> list[Reply]:
        return self._decoder.decode(asked)

    def _copy(self, actor: Actor) -> None:
        known = actor.model.state_dict()
        self._llama.load_state_dict({name: known[name] for name in self._llama.state_dict()})


class TransformersEngine:
    """Any causal language model, `rows` prompts at a time, one token after another with the model's own cache."""

    def __init__(self, actor: Actor, end: int, *, rows: int) -> None:
        self._actor, self._end, self._rows = actor, end, rows

    def load(self, actor: Actor) -> None:
        self._actor = actor

    def decode(self, asked: Sequence[Asked]) -> list[Reply]:
        """In order; prompts of like length together, so that little is padded."""
        found: dict[int, Reply] = {}
        order = sorted(range(len(asked)), key=lambda number: len(asked[number].prompt))
        for start in range(0, len(order), self._rows):
            some = order[start : start + self._rows]
            found |= zip(some, self._together([asked[number] for number in some]), strict=True)
        return [found[number] for number in range(len(asked))]

    @torch.inference_mode()
    def _together(self, asked: Sequence[Asked]) -> list[Reply]:
        model: Any = self._actor.model
        device, longest = self._actor.device, max(len(one.prompt) for one in asked)
        ids = torch.tensor([[0] * (longest - len(one.prompt)) + list(one.prompt) for one in asked], device=device)
        mask = torch.tensor([[0] * (longest - len(one.prompt)) + [1] * len(one.prompt) for one in asked], device=device)
        draws = [torch.Generator().manual_seed(one.seed) for one in asked]
        replies: list[tuple[list[int], list[float]]] = [([], []) for _ in asked]
        cache: Any = None
        for _ in range(max(one.most for one in asked)):
            positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            with torch.autocast(device.type, torch.bfloat16, enabled=self._actor.autocast):
                out = model(ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            logprobs = out.logits[:, -1].float().log_softmax(-1).cpu()
            chosen = [self._chosen(*each) for each in zip(logprobs, asked, draws, strict=True)]
            for row, (token, (written, said), one) in enumerate(zip(chosen, replies, asked, strict=True)):
                if not self._ended(written, one):
                    written.append(token)
                    said.append(float(logprobs[row, token]))
            if all(self._ended(written, one) for (written, _), one in zip(replies, asked, strict=True)):
                break
            ids = torch.tensor(chosen, device=device)[:, None]
            mask = torch.nn.functional.pad(mask, (0, 1), value=1)
        return [Reply(written, said, written[-1] == self._end, []) for written, said in replies]

    def _ended(self, written: list[int], one: Asked) -> bool:
        return len(written) == one.most or written[-1:] == [self._end]

    @staticmethod
    def _chosen(logprobs: Tensor, one: Asked, draw: torch.Generator) -> int:
        if one.temperature == 0:
            return int(logprobs.argmax())
        return int(torch.multinomial((logprobs / one.temperature).softmax(-1), 1, generator=draw))


def engine(actor: Actor, end: int, *, rows: int, context: int) -> Engine:
    """The decoding loop where it can run the model."""
    try:
        fits = from_config(_config(actor)).tied
    except UsageError:
        fits = False
    if not fits:
        return TransformersEngine(actor, end, rows=rows)
    return DecoderEngine(actor, end, rows=rows, context=context)


def _config(actor: Actor) -> dict[str, Any]:
    found: dict[str, Any] = actor.model.config.to_dict()
    return found
