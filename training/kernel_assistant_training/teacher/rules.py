"""Every operator that is followed as a position."""

from __future__ import annotations

from kernel_assistant_training.teacher.gather_moves import GATHERS
from kernel_assistant_training.teacher.joins import JOINS
from kernel_assistant_training.teacher.made import MADE
from kernel_assistant_training.teacher.moves import MOVES, Rule

RULES: dict[str, Rule] = {**MOVES, **JOINS, **GATHERS, **MADE}
