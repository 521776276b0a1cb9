"""Which machines compare: of one kind, with this very package on them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import kernel_assistant
from kernel_assistant.errors import UsageError
from kernel_assistant.targets.base import DeviceFacts
from kernel_assistant_training.ppo.pool_events import Greeting

#: Parts of the core that a judgement depends on; others may change under a machine that comes back.
JUDGING = ("environment", "records", "sandbox", "skills", "source", "targets", "worker")
_CORE = Path(kernel_assistant.__path__[0])
_HERE = Path(__file__).parent


def device_kind(device: DeviceFacts) -> str:
    """What an evaluation is good for: on the same kind it is not judged again."""
    threads = f"-{device.threads}" if device.target == "cpu" else ""
    return f"{device.target}-{device.name}-{device.arch}{threads}".replace(" ", "_")


def traits(greeting: Greeting) -> dict[str, str]:
    """What times depend on. Of the driver its branch: fixes within one change no times worth the refusal."""
    device = greeting.device
    return {
        "device": device.name,
        "architecture": device.arch,
        **({"threads": str(device.threads)} if device.target == "cpu" else {}),
        **({"driver": device.driver.partition(".")[0]} if device.driver else {}),
        "toolkit": greeting.toolkit,
        "torch": greeting.torch,
    }


def hold_together(first: str, before: Greeting, name: str, greeting: Greeting) -> None:
    """Raises UsageError where `name` is not of the kind of `first`."""
    ours, theirs = traits(before), traits(greeting)
    other = [trait for trait in ours if ours[trait] != theirs.get(trait)]
    if other:
        there, here = (", ".join(f"{trait} {one.get(trait, 'none')}" for trait in other) for one in (theirs, ours))
        raise UsageError(
            f"{name} has {there}; {first} has {here}: their times do not compare",
            "leave one of them out of --pool, or make them alike",
        )


def hold_apart(first: str, before: Greeting, name: str, greeting: Greeting) -> None:
    """Raises UsageError where both have the same GPU, by whatever names they are reached."""
    shared = set(before.gpus) & set(greeting.gpus)
    if shared:
        raise UsageError(
            f"{name} and {first} have the same GPU ({min(shared)}): they would time beside each other",
            "name it once in --pool",
        )


@cache
def own_version() -> dict[str, str]:
    """Version, and digest of the files of this package that judge, as they are."""
    digest = hashlib.sha256()
    files = [path for part in JUDGING for path in (_CORE / part).rglob("*") if "__pycache__" not in path.parts]
    for path in sorted([*files, *_HERE.glob("pool*.py"), _HERE / "tasks.py"]):
        if path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return {"version": kernel_assistant.__version__, "digest": digest.hexdigest()[:16]}


def hold_to_version(name: str, theirs: dict[str, str]) -> None:
    """Raises UsageError where the package on `name` is not this one."""
    ours = own_version()
    if theirs == ours:
        return
    said, mine = (f"kernel-assistant {one.get('version')}" for one in (theirs, ours))
    if said == mine:
        said, mine = f"{said} with other files ({theirs.get('digest')})", f"({ours['digest']})"
    raise UsageError(f"{name} has {said}, this machine {mine}", f"install there what is here: {ours['version']}")
