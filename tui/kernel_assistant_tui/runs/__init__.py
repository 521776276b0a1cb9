"""Training runs, read from their folders: docs/training_metrics.md."""
