"""All stages of training, one after another, from a recipe: docs/training_recipes.md. Loads no torch."""
