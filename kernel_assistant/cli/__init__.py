"""The command line. `main` is the entry point; commands live in a file each and are imported when they run."""

from __future__ import annotations

from kernel_assistant.cli.app import main

__all__ = ["main"]
