"""FreeWin: what a change gains that needs no kernel. Never counted as a kernel's gain."""

from __future__ import annotations

from kernel_assistant.records.codec import Record
from kernel_assistant.records.evaluation import measurably_faster, measurably_slower

#: The plain baseline, the one change that is not measured on top of torch.compile.
COMPILE = "compile"
TOGETHER = "together"


class FreeWin(Record, frozen=True, kw_only=True):
    """One change: `write` is the code that turns it on, in `together` the names of its parts.

    `ms` is the median per call; speed-ups are baseline over change from paired blocks, with 99.9% intervals; None where
    nothing was measured, and over torch.compile for torch.compile itself. Errors are against float64 on the declared
    inputs, `error_ratio` as a multiple of PyTorch's own. `passes` is False for what changes results or was not checked;
    `note` says which, or what a user has to know.
    """

    name: str
    write: str
    ms: float | None = None
    speedup_vs_eager: float | None = None
    speedup_vs_eager_ci: tuple[float, float] | None = None
    speedup_vs_compile: float | None = None
    speedup_vs_compile_ci: tuple[float, float] | None = None
    error_vs_fp64: float | None = None
    error_ratio: float | None = None
    passes: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        if self.passes and self.error_vs_fp64 is None:
            raise ValueError("a change that passes carries its error")
        if not self.passes and not self.note:
            raise ValueError("a change that does not pass says why")

    @property
    def measured(self) -> bool:
        return self.ms is not None

    @property
    def gains(self) -> bool:
        """Measurably faster than plain torch.compile, whether it passes or not."""
        return measurably_faster(self.speedup_vs_compile, self.speedup_vs_compile_ci)

    @property
    def loses(self) -> bool:
        """Measurably slower than plain torch.compile."""
        return measurably_slower(self.speedup_vs_compile, self.speedup_vs_compile_ci)


def best_free_win(wins: tuple[FreeWin, ...]) -> FreeWin | None:
    """The fastest that passes and is measurably faster than plain torch.compile."""
    good = [win for win in wins if win.passes and win.gains]
    return max(good, key=lambda win: win.speedup_vs_compile or 0.0, default=None)
