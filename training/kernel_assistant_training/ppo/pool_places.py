"""What `--pool` says: places that workers are at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl

from kernel_assistant.errors import UsageError

EXAMPLES = "local, local:2, ssh://me@box?workers=8, ray:auto or ray://head:10001"


@dataclass(frozen=True)
class Place:
    """`address` is what ssh or Ray calls it; no `workers` means one a GPU, no `python` the path of the one here."""

    kind: Literal["local", "ssh", "ray"]
    address: str = ""
    workers: int = 0
    python: str = ""


def places(words: Sequence[str]) -> list[Place]:
    """Of all `--pool` options together. Raises UsageError."""
    found = [one for word in words for one in _places(word)]
    for kind in ("local", "ray"):
        if len([one for one in found if one.kind == kind]) > 1:
            raise UsageError(f"--pool names {kind} twice", "name it once, with its number of workers")
    addresses = [one.address for one in found if one.kind == "ssh"]
    twice = next((one for one in addresses if addresses.count(one) > 1), "")
    if twice:
        raise UsageError(f"--pool names {twice} twice", "two shares of one machine would time beside each other")
    return found


def checked(word: str) -> str:
    """A word for `places`. Raises UsageError."""
    places([word])
    return word


def _places(word: str) -> list[Place]:
    head, _, rest = word.partition("?")
    options = _options(word, rest)
    workers, python = _number(word, options.get("workers", "0")), options.get("python", "")
    if head == "local" or head.startswith("local:"):
        number = head.partition(":")[2]
        if options or (head != "local" and not number):
            raise _wrong(word)
        return [Place("local", workers=_number(word, number or "0"))]
    if head.startswith("ssh://"):
        # A port is understood in ssh's own form for addresses.
        names = [f"ssh://{name}" if ":" in name else name for name in head.removeprefix("ssh://").split(",")]
        if not all(_is_name(name) for name in names):
            raise _wrong(word)
        return [Place("ssh", name, workers, python) for name in names]
    if head == "ray:auto" or (head.startswith("ray://") and _is_name(head.removeprefix("ray://"))):
        if python:
            raise UsageError(f"--pool {word}: Ray chooses the interpreter", "leave python out")
        return [Place("ray", head.removeprefix("ray:") if head == "ray:auto" else head, workers)]
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


def _is_name(text: str) -> bool:
    """Nothing that ssh would take for an option or for two arguments."""
    name = text.removeprefix("ssh://")
    return bool(name) and name[0] not in "-:/" and all(one.isprintable() and not one.isspace() for one in name)


def _wrong(word: str) -> UsageError:
    return UsageError(f"--pool {word} names no place", f"such as {EXAMPLES}")
