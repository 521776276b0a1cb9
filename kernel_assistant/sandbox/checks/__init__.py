"""The checks of `self_check.py`, grouped by subject. `probes.py` is the part that runs inside the sandbox."""

from __future__ import annotations
