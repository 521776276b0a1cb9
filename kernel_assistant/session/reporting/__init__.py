"""Texts that describe jobs, results and classes to users, the same in all front ends."""
