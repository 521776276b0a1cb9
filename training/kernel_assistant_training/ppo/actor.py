"""Actor and critic in one: a language model of transformers, and a value head on its last states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kernel_assistant.errors import MissingError, UsageError
from kernel_assistant_training.ppo.base import ADAPTER, LARGE, ModelOptions, folder_of, load_base, logits_of
from kernel_assistant_training.ppo.losses import entropy
from kernel_assistant_training.ppo.together import Together

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from kernel_assistant_training.ppo.adapter import Adapters

#: Logits that are there at once: 256 MiB in float32, and a few times that in the backward pass.
LOGITS = 1 << 26
#: Bytes of a file of weights: of small models in parts that every machine on loan hands over, see `folder.py`.
_SMALL, _PART, _LARGE_PART = 1 << 30, "15MB", "4GB"
#: In a folder of its own: others take every file of weights beside the configuration for the model's.
HEAD = Path("value", "head.safetensors")
#: What the check after loading allows, in nats: bfloat16 has three digits.
_SAME = 0.1
#: What the other processes are told where the model is in parts, see `together.py`.
WHOLE = "whole"


class ValueHead(nn.Module):
    """States (…, width) → values (…). Begins at 0 for every state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, states: Tensor) -> Tensor:
        return self.out(F.silu(self.inner(states)))[..., 0]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Judged:
    """(B, T) each, float32, 0 at observations. `values` have gradients to the head alone, the others to the model."""

    logprobs: Tensor
    values: Tensor
    entropy: Tensor


class Actor(nn.Module):
    """`model` is any causal language model with an output embedding. `autocast` computes in bfloat16. With `adapters`
    only those and the head are trained."""

    def __init__(
        self, model: PreTrainedModel, head: ValueHead, *, autocast: bool = False, adapters: Adapters | None = None
    ) -> None:
        super().__init__()
        self.model, self.head, self.autocast, self.adapters = model, head, autocast, adapters
        #: Of the processes that hold it in parts, see `sharding.py`.
        self.together, self.sharded = Together(), False

    @classmethod
    def load(cls, folder: Path, device: torch.device, options: ModelOptions | None = None) -> Self:
        """From a Hugging Face folder, a hub name or a checkpoint. What a folder does not have (head, adapters) begins
        anew, the same for each process. Raises UsageError."""
        options = options or ModelOptions()
        folder = folder_of(folder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model, adapters = _loaded(folder, device, options)
            head = ValueHead(_width(model))
        if (folder / HEAD).is_file():
            head.load_state_dict({name: weight.float() for name, weight in load_file(folder / HEAD).items()})
        actor = cls(model, head, autocast=device.type == "cuda", adapters=adapters).to(device)
        actor._check()
        large = sum(weight.numel() for weight in model.parameters()) >= LARGE
        if large if options.checkpointing is None else options.checkpointing:
            actor.checkpoint_layers()
        return actor

    @property
    def device(self) -> torch.device:
        return self.head.out.weight.device

    def checkpoint_layers(self) -> None:
        """Of each layer only its input is kept for the backward pass."""
        model: Any = self.model
        # The older name is deprecated, the newer not in all versions.
        name = "activation_checkpointing_enable"
        enable = getattr(model, name if hasattr(model, name) else "gradient_checkpointing_enable")
        enable({"use_reentrant": False})
        # Nothing is checkpointed otherwise; there is no dropout.
        model.train()

    @contextmanager
    def generating(self) -> Iterator[Any]:
        """The language model as it is for generating: with a cache, without gradients."""
        training = self.model.training
        model: Any = self.model
        model.eval()
        try:
            with torch.inference_mode(), self._precision():
                yield model
        finally:
            self.model.train(training)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast)

    def forward(self, ids: Tensor, actions: Tensor, *, trunk: bool = True) -> Judged:
        """What the state before each action says of it. Without `trunk` the language model gets no gradients.

        Rows are padded at the end, where nothing is asked: attention is causal and needs no mask.
        """
        with self._precision(), torch.set_grad_enabled(trunk and torch.is_grad_enabled()):
            states = self._states(ids)[:, :-1][actions[:, 1:]]
            logprobs, spread = self._said(states, ids[:, 1:][actions[:, 1:]])
        # In float32: bfloat16 has three digits, and advantages are differences of values.
        values = self.head(states.detach().float())
        return Judged(*(_placed(found.float(), actions) for found in (logprobs, values, spread)))

    def reference(self, folder: Path) -> Callable[[Tensor, Tensor], Judged]:
        """The policy of `folder`, which this stage began with, to be held to: without gradients. With adapters it is
        the same base."""
        adapters = self.adapters
        if adapters is None:
            return Actor.load(folder, self.device)
        if has_adapter(folder):
            adapters.keep_first(folder)

        def judge(ids: Tensor, actions: Tensor) -> Judged:
            with adapters.as_first():
                found: Judged = self(ids, actions, trunk=False)
            return found

        return judge

    def _states(self, ids: Tensor) -> Tensor:
        """(B, T, width), behind the last norm."""
        model: Any = self.model
        return model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state  # type: ignore[no-any-return]

    def _said(self, states: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities (N,) of the `chosen` tokens, and entropies. Logits are made again in the backward pass."""

        def piece(some: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
            logits = logits_of(self.model, some)
            said = logits.gather(-1, tokens[:, None])[:, 0] - logits.logsumexp(-1)
            return said, entropy(logits)

        at_once = max(1, LOGITS // self.model.config.get_text_config().vocab_size)
        parts = zip(torch.split(states, at_once), torch.split(chosen, at_once), strict=True)
        found = [checkpoint(piece, some, tokens, use_reentrant=False) for some, tokens in parts]
        return torch.cat([said for said, _ in found]), torch.cat([spread for _, spread in found])

    @torch.no_grad()
    def _check(self) -> None:
        """Raises UsageError where the model makes its logits in a way of its own."""
        ids = torch.arange(2, 18, device=self.device)[None] % self.model.config.get_text_config().vocab_size
        with self.generating() as model:
            said = model(ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
        mine = self(ids, torch.arange(16, device=self.device)[None] > 0).logprobs[0, 1:]
        away = float((said.gather(-1, ids[0, 1:, None])[:, 0] - mine).abs().max())
        if not away <= _SAME:
            family = type(self.model).__name__
            raise UsageError(f"{family} makes its logits in a way of its own", "train a model of another family")

    def whole(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """All weights of model and head in bfloat16 on the CPU. Where they are in parts, all processes take part."""
        # An output embedding that is tied to the input's is one and the same.
        known, every = dict(self.model.named_parameters()), dict(self.model.named_parameters(remove_duplicate=False))
        found = {name: one for name, one in self.model.state_dict().items() if name in known or name not in every}
        return _half(found), _half(self.head.state_dict())

    def save_weights(self, folder: Path) -> dict[str, Tensor]:
        """Those of the model, all of them, into a folder that is there; the head's are given back."""
        if self.sharded:
            self.together.tell(WHOLE)
        weights, head = self.whole()
        small = sum(weight.nbytes for weight in weights.values()) < _SMALL
        self.model.save_pretrained(folder, state_dict=weights, max_shard_size=_PART if small else _LARGE_PART)
        return head

    def save(self, folder: Path) -> None:
        """In bfloat16, into a folder that is there; what surrounds the weights (vocabulary, configuration) is the
        caller's to copy. With adapters those alone, in float32."""
        if self.adapters is None:
            head = self.save_weights(folder)
        else:
            head = _half(self.head.state_dict())
            self.adapters.save(folder)
        (folder / HEAD).parent.mkdir()
        save_file(head, folder / HEAD)


def _half(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: full(weight.detach()).to("cpu", torch.bfloat16) for name, weight in weights.items()}


def full(weight: Tensor) -> Tensor:
    """The whole of what may be in parts."""
    from torch.distributed.tensor import DTensor

    return weight.full_tensor() if isinstance(weight, DTensor) else weight


def has_adapter(folder: Path) -> bool:
    """Whether a checkpoint has adapters, which PEFT is needed for."""
    return (folder / ADAPTER / "base.json").is_file()


def _loaded(folder: Path, device: torch.device, options: ModelOptions) -> tuple[PreTrainedModel, Adapters | None]:
    if not options.lora and not has_adapter(folder):
        return load_base(folder, torch.float32), None
    try:
        from kernel_assistant_training.ppo.adapter import Adapters, base_of
    except ImportError as error:
        raise MissingError("peft is not installed", "pip install 'kernel-assistant[train]'") from error
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    if not has_adapter(folder):
        model = load_base(folder, dtype)
        return model, Adapters.new(model, folder, options.lora)
    model = load_base(base_of(folder), dtype)
    return model, Adapters.load(model, folder)


def _width(model: PreTrainedModel) -> int:
    """Of the states that the output embedding, and so the head, reads."""
    whole: Any = model
    return int(whole.get_output_embeddings().weight.shape[1])


def _placed(found: Tensor, actions: Tensor) -> Tensor:
    """(N,) of the actions, in their order → (B, T)."""
    return torch.zeros(actions.shape, device=found.device).masked_scatter(actions, found)
