"""Checks of applied kernels in the user's class: whether they run, and how fast."""
