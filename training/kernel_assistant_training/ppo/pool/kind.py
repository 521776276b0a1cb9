"""Defines which evaluations can be compared: those of the same version of the judge on the same kind of device."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import kernel_assistant
from kernel_assistant.errors import UsageError
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training import evaluation
from kernel_assistant_training.ppo.pool.hosts import HostReady

#: Parts of the core that evaluations depend on.
JUDGING = ("environment", "records", "sandbox", "skills", "source", "targets", "worker")
_CORE = Path(kernel_assistant.__path__[0])


@cache
def judge_version() -> str:
    """Returns a digest of the package's files on which evaluations depend. In an editable checkout it changes with each
    edit."""
    return _digest(path for part in JUDGING for path in (_CORE / part).rglob("*") if "__pycache__" not in path.parts)


@cache
def own_version() -> dict[str, str]:
    """Returns the `version` of the package, and a `digest` of the files that evaluations use. Both must be equal on all
    hosts; other files may differ."""
    own = [*Path(__file__).parent.glob("*.py"), *Path(evaluation.__path__[0]).glob("*.py")]
    return {"version": kernel_assistant.__version__, "digest": f"{judge_version()[:8]}{_digest(own)[:8]}"}


def _digest(paths: Iterable[Path]) -> str:
    """Returns a digest of the names and contents of files; folders are ignored."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        if path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def hold_to_version(name: str, theirs: dict[str, str]) -> None:
    """Raises UsageError if the host `name` has another version of the package (`theirs`, as `own_version` returns it)
    than this process."""
    ours = own_version()
    if theirs == ours:
        return
    their_version, mine = (f"kernel-assistant {one.get('version')}" for one in (theirs, ours))
    if their_version == mine:
        their_version, mine = f"{their_version} with other files ({theirs.get('digest')})", f"({ours['digest']})"
    raise UsageError(
        f"{name} has {their_version}, this machine {mine}", f"install there what is here: {ours['version']}"
    )


def device_kind(device: DeviceFacts) -> str:
    """Returns the kind of a device, as text. Evaluations are valid for all devices of the same kind."""
    threads = f"-{device.threads}" if device.target == "cpu" else ""
    return f"{device.target}-{device.name}-{device.arch}{threads}".replace(" ", "_")


def _traits(greeting: HostReady) -> dict[str, str]:
    """Returns name → value of the properties of a host on which times depend. Of the driver's version only the first
    number is included: later numbers rarely change times."""
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
    """Raises UsageError if the hosts `first` and `name` differ in device, driver, compiler or torch, because their
    times cannot be compared. `before` and `greeting` are their HostReady records."""
    ours, theirs = _traits(before), _traits(greeting)
    other = [trait for trait in ours if ours[trait] != theirs.get(trait)]
    if other:
        there, here = (", ".join(f"{trait} {one.get(trait, 'none')}" for trait in other) for one in (theirs, ours))
        raise UsageError(
            f"{name} has {there}; {first} has {here}: their times do not compare",
            "leave one of them out of --pool, or make them alike",
        )


def hold_apart(first: str, before: HostReady, name: str, greeting: HostReady) -> None:
    """Raises UsageError if the hosts `first` and `name` have the same GPU, even under different host names. `before`
    and `greeting` are their HostReady records."""
    shared = set(before.gpus) & set(greeting.gpus)
    if shared:
        raise UsageError(
            f"{name} and {first} have the same GPU ({min(shared)}): they would time beside each other",
            "name it once in --pool",
        )
