"""A run's figures for other eyes: TensorBoard's events, and plots."""
