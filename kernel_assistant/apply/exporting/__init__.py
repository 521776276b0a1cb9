"""Exports a result in forms that work without this tool. See docs/export.md."""
