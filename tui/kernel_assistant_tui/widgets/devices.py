"""GPUs, or the CPU where there is none."""

from __future__ import annotations

from textual.widgets import Static


class Devices(Static):
    """Reads by itself while it is seen."""
