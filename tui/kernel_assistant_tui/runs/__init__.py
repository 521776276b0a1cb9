"""Read training runs from their folders: docs/training_metrics.md."""
