"""The largest sizes of a conversation and of a reply, in tokens."""

from __future__ import annotations

#: Tokens of a conversation at most: what the shipped model was trained on.
CONTEXT = 4096
#: Tokens, the end included: the share of a conversation that the agent allows a reply (`agent/model_policy.py`). One
#: of a hundred of the generator's texts for drawn schedules is longer, and left out of training.
MOST_REPLY = CONTEXT * 3 // 8
