"""Reads training runs from their folders. See docs/training_metrics.md."""
