"""All operators that move elements, with their rules."""

from __future__ import annotations

from kernel_assistant_training.teacher.moving.gather_moves import GATHERS
from kernel_assistant_training.teacher.moving.joins import JOINS
from kernel_assistant_training.teacher.moving.made import MADE
from kernel_assistant_training.teacher.moving.moves import MOVES
from kernel_assistant_training.teacher.moving.pull import Rule

RULES: dict[str, Rule] = {**MOVES, **JOINS, **GATHERS, **MADE}
