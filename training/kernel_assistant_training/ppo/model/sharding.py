"""Sharded training (FSDP2): parameters, gradients and moments of each layer are divided among the processes."""

from __future__ import annotations

from kernel_assistant.errors import UsageError
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.model.process_group import ProcessGroup


def shard(actor: Actor, together: ProcessGroup) -> None:
    """Shards the actor in place, before an optimiser is created. Afterwards all processes must call the actor equally
    often. Raises UsageError.
    """
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
