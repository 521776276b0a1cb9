"""Dialogs over the main screen. Each returns what the user chose."""
