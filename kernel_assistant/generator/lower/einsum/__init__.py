"""Replaces `einsum` by steps that have two operands each."""
