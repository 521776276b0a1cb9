"""Commands that start other programs: language servers, models, the terminal application, training."""
