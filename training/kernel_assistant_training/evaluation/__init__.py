"""Evaluates candidates for training: workers open tasks and evaluate candidates, which compilers build in advance."""
