"""Real episodes for training: a teacher answers in place of a model, mistakes included. See docs/episodes.md."""
