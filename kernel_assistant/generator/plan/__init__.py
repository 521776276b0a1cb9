"""Cuts a graph into parts and joins their launches."""
