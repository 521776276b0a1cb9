"""Dialogs and pages over the main screen."""
