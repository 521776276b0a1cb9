"""FreeWin: the speed-up of a change that needs no kernel. Never counted as a kernel's gain."""

from __future__ import annotations

from kernel_assistant.records.codec import Record
from kernel_assistant.records.evaluation import measurably_faster, measurably_slower

#: The plain baseline, the one change that is not measured on top of torch.compile.
COMPILE = "compile"
TOGETHER = "together"
#: A module of half types computed in float32, on the CPU.
FLOAT32 = "float32"


class FreeWin(Record, frozen=True, kw_only=True):
    """One change, or several at once. `write` is the code that turns it on; `together` has the names of the single
    changes.

    `ms` is the median per call; speed-ups are baseline over change from paired blocks, with 99.9% intervals; they are
    None if nothing was measured. For the change `compile` itself there is no speed-up over torch.compile. Errors are
    against float64 on the declared inputs, `error_ratio` as a multiple of PyTorch's own. `passes` is False if the
    change alters results or was not checked; `note` says which of the two, or gives the user a remark.
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
        """Whether the change is measurably faster than plain torch.compile, even if it does not pass."""
        return measurably_faster(self.speedup_vs_compile, self.speedup_vs_compile_ci)

    @property
    def loses(self) -> bool:
        """Whether the change is measurably slower than plain torch.compile."""
        return measurably_slower(self.speedup_vs_compile, self.speedup_vs_compile_ci)


def float32_win(wins: tuple[FreeWin, ...], speedup_vs_compile: float | None) -> FreeWin | None:
    """The float32 win, if it is at least as fast as a kernel with this speed-up over the half type's torch.compile. The
    kernel then gains nothing over float32.
    """
    for win in wins:
        if win.name == FLOAT32 and win.passes and (win.speedup_vs_compile or 0.0) >= (speedup_vs_compile or 0.0) > 0.0:
            return win
    return None


def best_free_win(wins: tuple[FreeWin, ...]) -> FreeWin | None:
    """The fastest free win that passes and is measurably faster than plain torch.compile; None if there is none."""
    good = [win for win in wins if win.passes and win.gains]
    return max(good, key=lambda win: win.speedup_vs_compile or 0.0, default=None)
