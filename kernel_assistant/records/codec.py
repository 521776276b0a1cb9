"""Converts records to JSON and back. Decoding validates: a malformed document raises `UsageError`."""

from __future__ import annotations

import hashlib
import threading
from typing import Any, TypeVar

import msgspec

from kernel_assistant.errors import UsageError

T = TypeVar("T")


_preparing = threading.Lock()
_prepared: set[type] = set()


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every record: frozen, keyword-only, unknown fields refused."""


def encode(record: object) -> bytes:
    """Returns the record as canonical JSON: equal records give equal bytes, which content hashes need."""
    return msgspec.json.encode(record, order="deterministic")


def _prepare(kind: type[Any]) -> None:
    """Builds msgspec's decoder for a type, under a lock. If a second thread uses a type, or a type inside it, while
    msgspec (0.22) first analyses it, the process crashes."""
    if kind not in _prepared:
        with _preparing:
            msgspec.json.Decoder(kind)
            _prepared.add(kind)


def decode(data: bytes | str, kind: type[T]) -> T:
    """Returns the record of type `kind` in a JSON document: the inverse of `encode`. Raises UsageError, which names the
    field that does not fit."""
    _prepare(kind)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise UsageError(
            f"not a valid {kind.__name__}: {error}", "check the file or the program that wrote it"
        ) from error


def from_builtins(data: Any, kind: type[T]) -> T:
    """Returns the record of type `kind` from plain dicts and lists, such as the worker sends. Raises UsageError if they
    do not fit."""
    _prepare(kind)
    try:
        return msgspec.convert(data, type=kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"not a valid {kind.__name__}: {error}", "check the program that wrote it") from error


def to_builtins(record: object) -> Any:
    """Returns the record as plain dicts, lists, strings and numbers: the form in which it is sent to other
    processes."""
    return msgspec.to_builtins(record)


def content_hash(record: object) -> str:
    """Returns the first 16 hexadecimal digits of the SHA-256 of the record's canonical JSON."""
    return hashlib.sha256(encode(record)).hexdigest()[:16]
