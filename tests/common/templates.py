"""Templates of workers (docs/templates.md) that all processes of a run share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def templates_folder() -> Path:
    """One for each user and not for each run: who names it finds the templates of a run just before."""
    folder = Path(tempfile.gettempdir(), f"ka-tests-templates-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
