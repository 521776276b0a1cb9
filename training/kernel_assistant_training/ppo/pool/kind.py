"""Defines which hosts have comparable times: hosts with devices of the same kind and with this version of the
package.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import kernel_assistant
from kernel_assistant.errors import UsageError
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training import evaluation
from kernel_assistant_training.evaluation.version import digest_of, judge_version
from kernel_assistant_training.ppo.pool.events import HostReady

_HERE = Path(__file__).parent


def device_kind(device: DeviceFacts) -> str:
    """The kind of a device, as text. Evaluations are valid for all devices of the same kind."""
    threads = f"-{device.threads}" if device.target == "cpu" else ""
    return f"{device.target}-{device.name}-{device.arch}{threads}".replace(" ", "_")


def traits(greeting: HostReady) -> dict[str, str]:
    """The properties of a host on which times depend. Of the driver's version only the branch counts: fixes within a
    branch rarely change times.
    """
    device = greeting.device
    return {
        "device": device.name,
        "architecture": device.arch,
        **({"threads": str(device.threads)} if device.target == "cpu" else {}),
        **({"driver": device.driver.partition(".")[0]} if device.driver else {}),
        "toolkit": greeting.toolkit,
        "torch": greeting.torch,
    }


def hold_together(first: str, before: HostReady, name: str, greeting: HostReady) -> None:
    """Raises UsageError if `name` is of another kind than `first`."""
    ours, theirs = traits(before), traits(greeting)
    other = [trait for trait in ours if ours[trait] != theirs.get(trait)]
    if other:
        there, here = (", ".join(f"{trait} {one.get(trait, 'none')}" for trait in other) for one in (theirs, ours))
        raise UsageError(
            f"{name} has {there}; {first} has {here}: their times do not compare",
            "leave one of them out of --pool, or make them alike",
        )


def hold_apart(first: str, before: HostReady, name: str, greeting: HostReady) -> None:
    """Raises UsageError if both hosts have the same GPU, even under different host names."""
    shared = set(before.gpus) & set(greeting.gpus)
    if shared:
        raise UsageError(
            f"{name} and {first} have the same GPU ({min(shared)}): they would time beside each other",
            "name it once in --pool",
        )


@cache
def own_version() -> dict[str, str]:
    """The version of the package, with a digest of those files that evaluations use. Other files may differ on a host
    that comes back."""
    own = [*_HERE.glob("*.py"), *Path(evaluation.__path__[0]).glob("*.py"), _HERE.parent / "tasks.py"]
    return {"version": kernel_assistant.__version__, "digest": f"{judge_version()[:8]}{digest_of(own)[:8]}"}


def hold_to_version(name: str, theirs: dict[str, str]) -> None:
    """Raises UsageError if the package on `name` is not this one."""
    ours = own_version()
    if theirs == ours:
        return
    their_version, mine = (f"kernel-assistant {one.get('version')}" for one in (theirs, ours))
    if their_version == mine:
        their_version, mine = f"{their_version} with other files ({theirs.get('digest')})", f"({ours['digest']})"
    raise UsageError(
        f"{name} has {their_version}, this machine {mine}", f"install there what is here: {ours['version']}"
    )
