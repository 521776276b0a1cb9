"""Evaluating candidates for training: workers that open tasks, build ahead and judge."""
