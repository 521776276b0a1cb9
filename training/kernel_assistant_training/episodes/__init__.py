"""Episodes for training from the real environment: a lesson answers in place of a model, mistakes included. See
docs/episodes.md."""
