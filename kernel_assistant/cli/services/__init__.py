"""Commands that start something else: language servers, models, the terminal application, training."""
