"""Dialogs over the main screen. Each returns the user's choice."""
