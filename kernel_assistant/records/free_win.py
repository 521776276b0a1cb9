"""FreeWin: the speed-up of a change that needs no kernel, such as TF32 or a mode of torch.compile. Never counted as a
kernel's gain."""

from __future__ import annotations

from kernel_assistant.records.codec import Record
from kernel_assistant.records.evaluation import measurably_faster, measurably_slower

#: Plain torch.compile: the only change that is not measured on top of torch.compile.
COMPILE = "compile"
TOGETHER = "together"
#: The change that computes a module of half-precision types in float32, on the CPU.
FLOAT32 = "float32"
#: Changes that choose a mode of torch.compile, as a program may run it; the others change the module or its flags.
MODES = {"cuda_graphs": "reduce-overhead", "max_autotune": "max-autotune-no-cudagraphs"}


class FreeWin(Record, frozen=True, kw_only=True):
    """The measurement of one change that needs no kernel, or of several at once. `write` is the code that turns the
    change on; if `name` is `together`, it has the names of the single changes.

    `ms` is the median time of a call. Speed-ups are baseline time over time with the change, with 99.9% intervals; None
    if not measured. For the change `compile` itself there is no speed-up over torch.compile. Errors are against float64
    on the declared inputs, `error_ratio` as a multiple of PyTorch's own. `passes` is False if the change alters results
    or was not checked; `note` says which of the two, or gives the user a remark.
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
    def mode(self) -> str:
        """The name of the baseline, such as `torch.compile(mode="max-autotune")`, if the change is a mode of
        torch.compile; else ""."""
        return f'torch.compile(mode="{MODES[self.name]}")' if self.name in MODES else ""

    @property
    def gains(self) -> bool:
        """Whether the change is measurably faster than plain torch.compile, even if it alters results (`passes` is
        False)."""
        return measurably_faster(self.speedup_vs_compile, self.speedup_vs_compile_ci)

    @property
    def loses(self) -> bool:
        """Whether the change is measurably slower than plain torch.compile."""
        return measurably_slower(self.speedup_vs_compile, self.speedup_vs_compile_ci)


def float32_win(wins: tuple[FreeWin, ...], speedup_vs_compile: float | None) -> FreeWin | None:
    """Returns the change that computes a half-precision module in float32, if it passes and is at least as fast as a
    kernel with this speed-up over torch.compile; else None. Such a kernel gains nothing over computing in float32."""
    for win in wins:
        if win.name == FLOAT32 and win.passes and (win.speedup_vs_compile or 0.0) >= (speedup_vs_compile or 0.0) > 0.0:
            return win
    return None


def best_free_win(wins: tuple[FreeWin, ...]) -> FreeWin | None:
    """Returns the fastest free win that passes and is measurably faster than plain torch.compile; None if there is
    none."""
    good = [win for win in wins if win.passes and win.gains]
    return max(good, key=lambda win: win.speedup_vs_compile or 0.0, default=None)


def fastest_mode(wins: tuple[FreeWin, ...]) -> FreeWin | None:
    """Returns the fastest mode of torch.compile that passes and is measurably faster than its default; None if there is
    none."""
    return best_free_win(tuple(win for win in wins if win.mode))


def over_change(
    speedup: float | None, interval: tuple[float, float] | None, win: FreeWin
) -> tuple[float | None, tuple[float, float] | None]:
    """Returns the speed-up of a kernel over a change that needs no kernel, and its interval. Both are computed from the
    speed-ups of kernel and change over plain torch.compile.

    The two speed-ups were not measured together, so the interval's bounds are quotients of opposite bounds; both
    intervals hold together at 99.8% (Bonferroni). Returns (None, None) if one of the speed-ups was not measured.
    """
    if speedup is None or interval is None or win.speedup_vs_compile is None or win.speedup_vs_compile_ci is None:
        return None, None
    low, high = win.speedup_vs_compile_ci
    if low <= 0.0:
        return speedup / win.speedup_vs_compile, (interval[0] / high, float("inf"))
    return speedup / win.speedup_vs_compile, (interval[0] / high, interval[1] / low)
