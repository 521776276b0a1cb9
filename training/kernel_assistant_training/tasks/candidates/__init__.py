"""Writes the sources of tasks, before they are filtered: of one operator of a package ("crawled"), composed of
operators, or requested from a language model."""
