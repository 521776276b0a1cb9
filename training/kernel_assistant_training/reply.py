"""How long a reply of the compact profile may get, for all that generate: in training, evaluating, measuring."""

from __future__ import annotations

from kernel_assistant_training.tokenizer import CONTEXT

#: Tokens, the end included: the share of a conversation that the agent allows a reply (`agent/model_policy.py`). Of
#: 4,000 of the teacher's answers, with a line for each value, 26 have more than 1,024, and one more than this (2,240);
#: the longest of their prompts has 648.
MOST_REPLY = CONTEXT * 3 // 8
