"""Exports a result in forms that need nothing of this tool. See docs/export.md."""
