"""Cuts a graph into parts, one for each kernel or call, and joins their launches."""
