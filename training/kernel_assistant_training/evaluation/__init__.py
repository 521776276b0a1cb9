"""Evaluating candidates for training: workers open tasks and evaluate candidates, which are built in advance."""
