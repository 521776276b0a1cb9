"""Sizes of conversations, in tokens."""

from __future__ import annotations

#: Tokens of a conversation at most: what the shipped model was trained on.
CONTEXT = 4096
#: Tokens, the end included: the share of a conversation that the agent allows a reply (`agent/model_policy.py`). Of
#: 4,000 answers of the teacher, with a line for each value, 26 are longer than 1,024, and one is longer than this
#: (2,240); the longest of their prompts has 648.
MOST_REPLY = CONTEXT * 3 // 8
