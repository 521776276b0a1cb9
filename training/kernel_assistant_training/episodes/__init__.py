"""Episodes for training in the real environment: the replies come from a lesson, mistakes included, not from a model.
See docs/episodes.md."""
