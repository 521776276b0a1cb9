"""Chooses the inputs on which a candidate is verified."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from ..user_module.inputs import inputs_name

VARIANTS = ("normal", "x10", "shifted", "zeros", "ones")


@dataclass(frozen=True)
class Case:
    """One choice of inputs for verifying: the number of the workload, the kind of values (`variant`: "declared", or one
    of VARIANTS), sizes of the free dimensions (None: as declared), and a seed.

    `reweighted` multiplies parameters and buffers by fresh factors, so that a kernel that contains their values as
    constants fails."""

    workload: int
    variant: str
    dims: tuple[tuple[str, int], ...] | None
    seed: int
    reweighted: bool = False

    @property
    def name(self) -> str:
        return inputs_name(self.workload, self.variant, self.dims, self.reweighted)

    @property
    def optional(self) -> bool:
        """Whether the case is skipped if the reference itself cannot run it (a size or a value range that it does not
        accept)."""
        return self.dims is not None or self.variant != "declared"


def full_cases(workloads: int, held_out: list[dict[str, int]], has_constants: bool) -> list[Case]:
    """Returns the cases of the full tier, with unpredictable seeds, for that number of workloads. `held_out` are sizes
    of the free dimensions at which candidates are verified too; with `has_constants` a case changes parameters and
    buffers."""
    cases = [Case(0, "declared", None, fresh_seed())]
    cases += [Case(0, "declared", tuple(sizes.items()), fresh_seed()) for sizes in held_out]
    if has_constants:
        cases.append(Case(0, "declared", None, fresh_seed(), reweighted=True))
    cases += [Case(index, "declared", None, fresh_seed()) for index in range(1, workloads)]
    cases += [Case(0, variant, None, fresh_seed()) for variant in VARIANTS]
    return cases


def fresh_seed() -> int:
    return secrets.randbelow(1 << 31)
