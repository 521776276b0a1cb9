"""Measures how long the reference and candidates take, computes statistics of the times, and the least time that the
device needs."""
