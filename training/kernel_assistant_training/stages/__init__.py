"""The stages of training that change or judge weights: a module for each command, and what only they need."""
