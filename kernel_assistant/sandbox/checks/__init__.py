"""What `self_check.py` asks, grouped by subject. `probes.py` is the part that runs inside."""

from __future__ import annotations
