"""Updates the weights from trajectories: selection, advantages, losses, steps."""
