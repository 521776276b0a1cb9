"""Makes training episodes in the real environment. The replies are not a model's: a lesson plans them, deliberate
mistakes included. See docs/episodes.md."""
