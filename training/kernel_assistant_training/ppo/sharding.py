"""A model in parts: parameters, gradients and moments of each layer are spread over the processes (FSDP2)."""

from __future__ import annotations

from kernel_assistant.errors import UsageError
from kernel_assistant_training.ppo.actor import Actor
from kernel_assistant_training.ppo.together import Together


def shard(actor: Actor, together: Together) -> None:
    """In place; before an optimiser is made. All processes call the actor equally often then. Raises UsageError."""
    from torch.distributed.fsdp import fully_shard

    if actor.adapters is not None:
        raise UsageError("--shard spreads weights that are trained", "leave it out with --lora: each GPU has the base")
    if together.count < 2:
        raise UsageError("--shard needs several processes", "accelerate launch --num_processes N -m …")
    names = set(actor.model._no_split_modules or ())
    layers = [one for one in actor.model.modules() if type(one).__name__ in names]
    if not layers:
        raise UsageError(f"{type(actor.model).__name__} does not say what its layers are", "leave --shard out")
    for layer in layers:
        fully_shard(layer)
    fully_shard(actor)
    actor.together = together
    actor.sharded = True
