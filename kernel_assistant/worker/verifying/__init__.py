"""Verifying a candidate: on which inputs, and how close its outputs have to be to the reference's."""
