"""Actor and critic in one module: a causal language model of transformers, and a value head on its last hidden
states."""

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
from kernel_assistant_training.ppo.model.base import ADAPTER, LARGE, PolicyModelOptions, folder_of, load_base, logits_of
from kernel_assistant_training.ppo.model.process_group import ProcessGroup
from kernel_assistant_training.ppo.updates.losses import entropy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from kernel_assistant_training.ppo.model.adapter import Adapters

#: Number of logits computed at a time: 256 MiB in float32, and a few times that in the backward pass.
LOGITS = 1 << 26
#: Size limits of files of weights: small models are split into parts that every borrowed machine can transfer, see
#: `folder.py`.
_SMALL, _PART, _LARGE_PART = 1 << 30, "15MB", "4GB"
#: In a subfolder: other programs load every file of weights beside the configuration as the model's.
HEAD = Path("value", "head.safetensors")
#: Largest difference that the check after loading allows, in nats: bfloat16 has three digits.
_SAME = 0.1
#: The command to the other processes to gather a sharded model, see `process_group.py`.
WHOLE = "whole"


class ValueHead(nn.Module):
    """Maps hidden states (…, width) to predicted rewards (…). A newly created head returns 0 for every state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, states: Tensor) -> Tensor:
        return self.out(F.silu(self.inner(states)))[..., 0]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ActorOutput:
    """Log-probability, value and entropy of each action (a token that the model wrote), (B, T) each, in float32; 0 at
    all other tokens. Gradients of `values` reach only the value head; gradients of `logprobs` and `entropy` reach the
    language model."""

    logprobs: Tensor
    values: Tensor
    entropy: Tensor


class Actor(nn.Module):
    """The policy model with its value head. `model` is any causal language model with an output embedding, `head` the
    value head. With `autocast`, the model computes in bfloat16. With `adapters`, only the adapters and the head are
    trained."""

    def __init__(
        self, model: PreTrainedModel, head: ValueHead, *, autocast: bool = False, adapters: Adapters | None = None
    ) -> None:
        super().__init__()
        self.model, self.head, self.autocast, self.adapters = model, head, autocast, adapters
        #: The processes that hold a sharded model, see `sharding.py`.
        self.together, self.sharded = ProcessGroup(), False

    @classmethod
    def load(cls, folder: Path, device: torch.device, options: PolicyModelOptions | None = None) -> Self:
        """Loads an actor from a Hugging Face folder, a hub name or a checkpoint. A missing head or missing adapters are
        initialised, identically in each process. Raises UsageError if the model cannot be loaded or trained, and
        MissingError if the model needs PEFT and it is not installed."""
        options = options or PolicyModelOptions()
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
        """Turns on activation checkpointing: only the input of each layer is kept for the backward pass."""
        model: Any = self.model
        # The old name is deprecated, and the new one is missing in some versions.
        name = "activation_checkpointing_enable"
        enable = getattr(model, name if hasattr(model, name) else "gradient_checkpointing_enable")
        enable({"use_reentrant": False})
        # Checkpointing works in training mode only; there is no dropout.
        model.train()

    @contextmanager
    def generating(self) -> Iterator[Any]:
        """A context with the language model in evaluation mode, without gradients, for generation."""
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

    def forward(self, ids: Tensor, actions: Tensor, *, trunk: bool = True) -> ActorOutput:
        """Returns log-probability, value and entropy of each action (sampled token), computed from the hidden state
        before it. `ids` and `actions` (True at actions) are (B, T). Without `trunk` the language model gets no
        gradients.

        Rows are padded at the end, where `actions` is False; attention is causal, so no mask is needed.
        """
        with self._precision(), torch.set_grad_enabled(trunk and torch.is_grad_enabled()):
            states = self._states(ids)[:, :-1][actions[:, 1:]]
            logprobs, spread = self._token_logprobs(states, ids[:, 1:][actions[:, 1:]])
        # In float32: bfloat16 has three digits, and advantages are differences of values.
        values = self.head(states.detach().float())
        return ActorOutput(*(_placed(figures.float(), actions) for figures in (logprobs, values, spread)))

    def reference(self, folder: Path) -> Callable[[Tensor, Tensor], ActorOutput]:
        """Returns a function that computes, without gradients, the outputs of the policy in `folder`, with which the
        stage began; the KL term compares the actor with it. With adapters, this policy shares the actor's base model.
        """
        adapters = self.adapters
        if adapters is None:
            return Actor.load(folder, self.device)
        if has_adapter(folder):
            adapters.keep_first(folder)

        def judge(ids: Tensor, actions: Tensor) -> ActorOutput:
            with adapters.as_first():
                output: ActorOutput = self(ids, actions, trunk=False)
            return output

        return judge

    def _states(self, ids: Tensor) -> Tensor:
        """Returns the hidden states after the last norm, (B, T, width)."""
        model: Any = self.model
        return model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state  # type: ignore[no-any-return]

    def _token_logprobs(self, states: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the log-probabilities of the `chosen` tokens (N,) and the entropies (N,), for hidden `states` (N,
        width). Logits are recomputed in the backward pass to save memory."""

        def piece(some: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
            logits = logits_of(self.model, some)
            logprobs = logits.gather(-1, tokens[:, None])[:, 0] - logits.logsumexp(-1)
            return logprobs, entropy(logits)

        at_once = max(1, LOGITS // self.model.config.get_text_config().vocab_size)
        parts = zip(torch.split(states, at_once), torch.split(chosen, at_once), strict=True)
        outputs = [checkpoint(piece, some, tokens, use_reentrant=False) for some, tokens in parts]
        return torch.cat([logprobs for logprobs, _ in outputs]), torch.cat([spread for _, spread in outputs])

    @torch.no_grad()
    def _check(self) -> None:
        """Raises UsageError if the logits of the model's own forward pass differ from those of `logits_of`, which
        training uses."""
        ids = torch.arange(2, 18, device=self.device)[None] % self.model.config.get_text_config().vocab_size
        with self.generating() as model:
            expected = model(ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
        mine = self(ids, torch.arange(16, device=self.device)[None] > 0).logprobs[0, 1:]
        away = float((expected.gather(-1, ids[0, 1:, None])[:, 0] - mine).abs().max())
        if not away <= _SAME:
            family = type(self.model).__name__
            raise UsageError(f"{family} makes its logits in a way of its own", "train a model of another family")

    def whole(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Returns two dictionaries, name → weight in bfloat16 on the CPU: all weights of the model, and those of the
        head. If the model is sharded, all processes must call this."""
        # A tied output embedding is the same tensor as the input embedding, and is saved once.
        known, every = dict(self.model.named_parameters()), dict(self.model.named_parameters(remove_duplicate=False))
        weights = {name: one for name, one in self.model.state_dict().items() if name in known or name not in every}
        return _half(weights), _half(self.head.state_dict())

    def save_weights(self, folder: Path) -> dict[str, Tensor]:
        """Saves all weights of the model into an existing folder. Returns the weights of the head, which are not
        saved."""
        if self.sharded:
            self.together.tell(WHOLE)
        weights, head = self.whole()
        small = sum(weight.nbytes for weight in weights.values()) < _SMALL
        self.model.save_pretrained(folder, state_dict=weights, max_shard_size=_PART if small else _LARGE_PART)
        return head

    def save(self, folder: Path) -> None:
        """Saves model and head in bfloat16 into an existing folder; the caller copies vocabulary and configuration.
        With adapters, saves the adapters in float32 instead of the model."""
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
    """Returns the full tensor of a weight that may be sharded."""
    from torch.distributed.tensor import DTensor

    return weight.full_tensor() if isinstance(weight, DTensor) else weight


def has_adapter(folder: Path) -> bool:
    """Whether the checkpoint in `folder` has adapters, which need PEFT."""
    return (folder / ADAPTER / "base.json").is_file()


def _loaded(folder: Path, device: torch.device, options: PolicyModelOptions) -> tuple[PreTrainedModel, Adapters | None]:
    if not options.lora and not has_adapter(folder):
        return load_base(folder, torch.float32), None
    try:
        from kernel_assistant_training.ppo.model.adapter import Adapters, base_of
    except ImportError as error:
        raise MissingError("peft is not installed", "pip install 'kernel-assistant[train]'") from error
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    if not has_adapter(folder):
        model = load_base(folder, dtype)
        return model, Adapters.new(model, folder, options.lora)
    model = load_base(base_of(folder), dtype)
    return model, Adapters.load(model, folder)


def _width(model: PreTrainedModel) -> int:
    """Returns the width of the hidden states that the output embedding and the value head read."""
    whole: Any = model
    return int(whole.get_output_embeddings().weight.shape[1])


def _placed(values: Tensor, actions: Tensor) -> Tensor:
    """Returns a tensor (B, T) that has `values` (N,), in order, where `actions` (B, T) is True, and 0 elsewhere."""
    return torch.zeros(actions.shape, device=values.device).masked_scatter(actions, values)
