"""Texts of tasks before they are filtered: crawled, composed, asked of a model."""
