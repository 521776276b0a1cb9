"""Runs small models, such as the one that ships with the package, with llama.cpp in a separate process."""
