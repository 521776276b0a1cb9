"""Builds binaries from a candidate's sources, and reads the compilers' messages."""
