"""Defines the type of the tools that a conversation offers: dictionaries in the form of an OpenAI-compatible
request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Tools = Sequence[dict[str, Any]]
