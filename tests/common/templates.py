"""Worker templates (docs/templates.md) that all processes of a run share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def templates_folder() -> Path:
    """The folder is the same for all runs of a user, so that a run finds the templates of the previous run."""
    folder = Path(tempfile.gettempdir(), f"ka-tests-templates-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
