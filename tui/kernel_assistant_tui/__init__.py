"""The terminal front end of kernel-assistant: docs/tui.md."""
