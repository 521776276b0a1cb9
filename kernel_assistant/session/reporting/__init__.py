"""Texts about jobs, results and classes, which all front ends show."""
