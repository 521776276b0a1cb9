"""Makes training episodes in the real environment. The replies are those that a lesson planned, deliberate mistakes
included, not a model's. See docs/episodes.md."""
