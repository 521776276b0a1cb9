"""Exports a result as files that work without this tool. See docs/export.md."""
