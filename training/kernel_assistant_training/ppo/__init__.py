"""Reinforcement learning: PPO on conversations with the real environment. See docs/training.md."""
