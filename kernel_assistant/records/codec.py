"""JSON round trip of records. Decoding validates: a malformed document raises `UsageError`, never passes."""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

import msgspec

from kernel_assistant.errors import UsageError

T = TypeVar("T")


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every record: frozen, keyword-only, unknown fields refused."""


def encode(record: object) -> bytes:
    """Canonical JSON: equal records give equal bytes (used for content hashes)."""
    return msgspec.json.encode(record, order="deterministic")


def decode(data: bytes | str, kind: type[T]) -> T:
    """Inverse of `encode`. Raises UsageError naming the field that does not fit."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise UsageError(
            f"not a valid {kind.__name__}: {error}", "check the file or the program that wrote it"
        ) from error


def from_builtins(data: Any, kind: type[T]) -> T:
    """A record from plain dicts and lists (what the worker sends)."""
    try:
        return msgspec.convert(data, type=kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"not a valid {kind.__name__}: {error}", "check the program that wrote it") from error


def to_builtins(record: object) -> Any:
    """Plain dicts, lists, strings and numbers, ready for the wire."""
    return msgspec.to_builtins(record)


def content_hash(record: object) -> str:
    """First 16 hexadecimal digits of SHA-256 over the canonical JSON."""
    return hashlib.sha256(encode(record)).hexdigest()[:16]
