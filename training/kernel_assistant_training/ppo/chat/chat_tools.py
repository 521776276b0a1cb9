"""The tools that a conversation offers, as an OpenAI-compatible request has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Tools = Sequence[dict[str, Any]]
