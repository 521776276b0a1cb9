"""Episodes for training from the real environment: a teacher answers in place of a model, mistakes included. See
docs/episodes.md."""
