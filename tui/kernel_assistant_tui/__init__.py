"""The terminal interface of kernel-assistant. See docs/tui.md."""
