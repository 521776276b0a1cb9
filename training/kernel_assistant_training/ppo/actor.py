"""Actor and critic in one: a language model of transformers, and a value head on its last states."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from kernel_assistant.errors import UsageError
from kernel_assistant_training.ppo.losses import entropy

#: Actions whose logits are there at once: with 128k of vocabulary 1 GiB in float32.
AT_ONCE = 2048
#: In a folder of its own: others take every file of weights beside the configuration for the model's.
HEAD = Path("value", "head.safetensors")


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
    """`model` is any causal language model with an output embedding. In float32; `autocast` computes in bfloat16."""

    def __init__(self, model: PreTrainedModel, head: ValueHead, *, autocast: bool = False) -> None:
        super().__init__()
        self.model, self.head, self.autocast = model, head, autocast

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> Self:
        """From a Hugging Face folder; the head begins anew where the folder has none. Raises UsageError."""
        # A bar for each of hundreds of checkpoints would be all that one sees.
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
        except (OSError, ValueError) as error:
            raise UsageError(f"{folder} holds no model: {error}", "name a folder that sft or pretrain wrote") from error
        model.config.use_cache = False
        head = ValueHead(model.get_input_embeddings().embedding_dim)
        if (folder / HEAD).is_file():
            head.load_state_dict({name: weight.float() for name, weight in load_file(folder / HEAD).items()})
        return cls(model, head, autocast=device.type == "cuda").to(device)

    @property
    def device(self) -> torch.device:
        return self.head.out.weight.device

    def forward(self, ids: Tensor, actions: Tensor, *, trunk: bool = True) -> Judged:
        """What the state before each action says of it. Without `trunk` the language model gets no gradients.

        Rows are padded at the end, where nothing is asked: attention is causal and needs no mask.
        """
        with (
            torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast),
            torch.set_grad_enabled(trunk and torch.is_grad_enabled()),
        ):
            states = self._states(ids)[:, :-1][actions[:, 1:]]
            logprobs, spread = self._said(states, ids[:, 1:][actions[:, 1:]])
        # In float32: bfloat16 has three digits, and advantages are differences of values.
        values = self.head(states.detach().float())
        return Judged(*(_placed(found.float(), actions) for found in (logprobs, values, spread)))

    def _states(self, ids: Tensor) -> Tensor:
        """(B, T, width), behind the last norm."""
        model: Any = self.model
        return model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state  # type: ignore[no-any-return]

    def _said(self, states: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities (N,) of the `chosen` tokens, and entropies. Logits are made again in the backward pass."""
        model: Any = self.model
        output = model.get_output_embeddings()

        def piece(some: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
            logits = output(some).float()
            said = logits.gather(-1, tokens[:, None])[:, 0] - logits.logsumexp(-1)
            return said, entropy(logits)

        parts = zip(torch.split(states, AT_ONCE), torch.split(chosen, AT_ONCE), strict=True)
        found = [checkpoint(piece, some, tokens, use_reentrant=False) for some, tokens in parts]
        return torch.cat([said for said, _ in found]), torch.cat([spread for _, spread in found])

    def save(self, folder: Path) -> None:
        """In bfloat16, into a folder that is there; what surrounds the weights (vocabulary, configuration) is the
        caller's to copy."""
        weights: dict[str, Tensor] = {}
        seen: set[int] = set()
        for name, weight in self.model.state_dict().items():
            # An output embedding that is tied to the input's is one and the same.
            if weight.data_ptr() not in seen:
                weights[name] = weight.detach().to("cpu", torch.bfloat16)
            seen.add(weight.data_ptr())
        self.model.save_pretrained(folder, state_dict=weights, max_shard_size="15MB")
        (folder / HEAD).parent.mkdir()
        head = {name: weight.detach().to("cpu", torch.bfloat16) for name, weight in self.head.state_dict().items()}
        save_file(head, folder / HEAD)


def _placed(found: Tensor, actions: Tensor) -> Tensor:
    """(N,) of the actions, in their order → (B, T)."""
    return torch.zeros(actions.shape, device=found.device).masked_scatter(actions, found)
