"""Verifies a candidate: chooses the inputs on which it runs, and decides whether its outputs are close enough to the
reference's."""
