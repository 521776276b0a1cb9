"""The command line. `main` is the entry point. Each command has a module of its own, which is imported when the
command runs."""

from __future__ import annotations

from kernel_assistant.cli.app import main

__all__ = ["main"]
