"""The widgets of the panes."""
