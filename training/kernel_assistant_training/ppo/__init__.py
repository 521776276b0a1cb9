"""Learning by reward: PPO over conversations with the real environment. See docs/training.md."""
