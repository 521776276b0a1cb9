"""Runs all stages of training in order, from a recipe: docs/training_recipes.md. Does not import torch."""
