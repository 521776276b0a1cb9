"""Parses `--pool`: the addresses of evaluation hosts."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl

from kernel_assistant.errors import UsageError

EXAMPLES = "local, local:2, ray:auto or ray://head:10001?workers=8"


@dataclass(frozen=True)
class HostAddress:
    """The address of an evaluation host. `address` is what Ray connects to. `workers` is the number of workers, with
    Ray the number per GPU; 0 means one per GPU. `python` is the interpreter of Ray's actors; "" means Ray's own."""

    kind: Literal["local", "ray"]
    address: str = ""
    workers: int = 0
    python: str = ""


def places(words: Sequence[str]) -> list[HostAddress]:
    """Parses the words of all `--pool` options together. Raises UsageError if a word is no address, or if two have the
    same kind."""
    hosts = [_address_of(word) for word in words]
    for kind in ("local", "ray"):
        if len([one for one in hosts if one.kind == kind]) > 1:
            raise UsageError(f"--pool names {kind} twice", "name it once, with its number of workers")
    return hosts


def checked(word: str) -> str:
    """Returns the word unchanged if it is a valid address. Raises UsageError if it is not."""
    places([word])
    return word


def _address_of(word: str) -> HostAddress:
    head, _, rest = word.partition("?")
    if head.startswith("ssh://"):
        raise _connected_by_ray(word, head.removeprefix("ssh://"), rest)
    options = _options(word, rest)
    workers = _number(word, options.get("workers", "0"))
    if head == "local" or head.startswith("local:"):
        number = head.partition(":")[2]
        if options or (head != "local" and not number):
            raise _wrong(word)
        return HostAddress("local", workers=_number(word, number or "0"))
    if head == "ray:auto" or (head.startswith("ray://") and head != "ray://"):
        return HostAddress("ray", "auto" if head == "ray:auto" else head, workers, options.get("python", ""))
    raise _wrong(word)


def _options(word: str, text: str) -> dict[str, str]:
    try:
        options = dict(parse_qsl(text, strict_parsing=True)) if text else {}
    except ValueError as error:
        raise _wrong(word) from error
    unknown = set(options) - {"workers", "python"}
    if unknown:
        raise UsageError(f"--pool {word}: {min(unknown)} is no option of a place", "there are workers and python")
    return options


def _number(word: str, text: str) -> int:
    if not text.isdigit():
        raise UsageError(f"--pool {word}: {text!r} is no number of workers", f"such as {EXAMPLES}")
    return int(text)


def _connected_by_ray(word: str, machine: str, options: str) -> UsageError:
    """Returns the error for an address `ssh://…`; it says how to connect the machine by Ray."""
    here, pool = socket.gethostname(), f"ray:auto?{options}" if options else "ray:auto"
    return UsageError(
        f"--pool {word}: other machines are connected by Ray",
        f"type here: ray start --head --port=6379; on {machine or 'each other machine'}: "
        f"ray start --address={here}:6379; then use --pool '{pool}'",
    )


def _wrong(word: str) -> UsageError:
    return UsageError(f"--pool {word} names no place", f"such as {EXAMPLES}")
