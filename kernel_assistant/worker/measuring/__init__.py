"""Measuring: times, their statistics, and what the device could do."""
