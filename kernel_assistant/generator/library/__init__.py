"""Finds the nodes of a graph that a library (cuBLASLt or cuDNN) computes, and writes the launches for them."""
