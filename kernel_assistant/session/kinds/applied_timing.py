"""Times of the edited file, and the settings of its guard that follow from them. The guard decides before each call
whether the kernels or the original code run."""

from __future__ import annotations

from pathlib import Path

from kernel_assistant.apply import AppliedOptions
from kernel_assistant.errors import StoreError, boundary
from kernel_assistant.records import decode, encode
from kernel_assistant.records.codec import Record
from kernel_assistant.records.evaluation import Gain, gain_of, measurably_faster
from kernel_assistant.records.offer import OVER_COMPILE, OVER_EAGER, Offer, offer_of

APPLIED_FILE = "applied.json"


#: Explanations of the guard's reasons for which the name is not enough.
_WORDS = {
    "alignment": "an input is not aligned as the kernels need it",
    "attributes": "an attribute of the module is not what it was (training mode counts)",
    "hooks": "the module or one inside it has hooks",
    "parameters": "a parameter is not what it was",
    "gradient": "gradients are wanted",
    "subclass": "the module is of a derived class",
}


class AppliedRow(Record, frozen=True, kw_only=True):
    """The times of a class at one size (`dims`: dimension → length; `elements`: of all inputs together). `name` says
    how it was called: "alone", in a "compiled parent", or with "unaligned" tensors. `speedup` is original time divided
    by applied time, with its 99.9% interval; `equal`: both gave the same results."""

    name: str
    dims: dict[str, int]
    elements: int
    original_ms: float
    applied_ms: float
    speedup: float
    speedup_ci: tuple[float, float]
    equal: bool

    @property
    def verdict(self) -> Gain:
        return gain_of(self.speedup, self.speedup_ci)

    @property
    def loses(self) -> bool:
        """Whether the original is faster at this size, so that the guard should run it. The point estimate decides,
        even if the difference is not significant."""
        return self.speedup < 1.0


class AppliedTiming(Record, frozen=True, kw_only=True):
    """All measured rows, and the settings of the guard that follow from them. `worth` is False if applying is no gain.
    The guard runs the original for inputs with fewer than `min_elements` elements. `compiled_parent` ("kernel" or
    "original") says what runs if torch.compile compiles the calling module, `unaligned` what a call with unaligned
    tensors runs: "copy" (the kernels on aligned copies) or "original".

    `kernel_calls` and `fallbacks` (reason → calls of the original) count calls at the size that the task declares;
    older files lack them (None and empty).
    """

    rows: tuple[AppliedRow, ...]
    min_elements: int
    compiled_parent: str
    worth: bool
    kernel_calls: int | None = None
    fallbacks: dict[str, int] = {}
    unaligned: str = "original"

    @property
    def failure(self) -> str:
        """Why the times cannot be used: the results differ, or the kernels never ran. "" if the times are valid."""
        different = next((row for row in self.rows if not row.equal), None)
        if different is not None:
            where = ", ".join([different.name, *(f"{name}={size}" for name, size in different.dims.items())])
            return f"the edited file gives other results than the original ({where})"
        if self.kernel_calls == 0:
            reasons = ", ".join(f"{_WORDS.get(one, one)} ({count} calls)" for one, count in self.fallbacks.items())
            return f"the kernels never ran in the edited file: {reasons or 'no call reached them'}"
        return ""

    @property
    def in_file(self) -> Gain:
        """The verdict on the edited file at the size that the task declares."""
        return self.rows[0].verdict

    @property
    def shortfall(self) -> str:
        """A message for users: the reason why applying is no gain. Valid only if `worth` is False and there is no
        `failure`."""
        if self.in_file is Gain.unclear:
            return f"it is not clear whether the kernels gain anything in the edited file ({self.summary()})"
        return f"the kernels gain nothing once they are in the file ({self.summary()})"

    def summary(self) -> str:
        """Returns the speed-up of the edited file in words, guard included, and the calls for which the original still
        runs; or the `failure`."""
        if self.failure:
            return self.failure
        low, high = self.rows[0].speedup_ci
        words = f"{self.rows[0].speedup:.2f}× ({low:.2f}–{high:.2f}) as fast as your class is without torch.compile"
        originals = [f"for less than {self.min_elements} elements"] if self.min_elements else []
        originals += ["where torch.compile compiles what calls it"] if self.compiled_parent == "original" else []
        return words + (f"; your own code runs {' and '.join(originals)}" if originals else "")

    @property
    def options(self) -> AppliedOptions:
        declared = self.rows[0]
        return AppliedOptions(
            min_elements=self.min_elements,
            compiled_parent=self.compiled_parent,
            unaligned=self.unaligned,
            speedup=declared.speedup,
            speedup_ci=declared.speedup_ci,
        )


def conclude(
    rows: tuple[AppliedRow, ...], kernel_calls: int | None = None, fallbacks: dict[str, int] | None = None
) -> AppliedTiming:
    """Derives the guard's settings from the measured rows. The first row has the size that the task declares, called
    alone; if it shows no gain, it is the only row. At smaller sizes where the kernels are slower, the guard will run
    the original."""
    alone = [row for row in rows if row.name == "alone"]
    inside = [row for row in rows if row.name == "compiled parent"]
    copied = [row for row in rows if row.name == "unaligned"]
    declared = alone[0]
    losing = [row.elements for row in alone[1:] if row.loses]
    # Without a measurement inside a compiled parent, the original runs there.
    kernel_inside = bool(inside) and not any(row.loses for row in inside)
    # By the rule of every offer: calls as they are stand for eager mode.
    verdicts = {OVER_EAGER: declared.verdict, OVER_COMPILE: inside[0].verdict if kernel_inside else Gain.unknown}
    return AppliedTiming(
        rows=rows,
        min_elements=max((size + 1 for size in losing if size < declared.elements), default=0),
        compiled_parent="kernel" if kernel_inside else "original",
        unaligned="copy" if copied and measurably_faster(copied[0].speedup, copied[0].speedup_ci) else "original",
        kernel_calls=kernel_calls,
        fallbacks=fallbacks or {},
        worth=all(row.equal for row in rows)
        and kernel_calls != 0
        and offer_of(verdicts) is Offer.recommended
        and not any(size >= declared.elements for size in losing),
    )


def write_applied(result_dir: Path, timing: AppliedTiming) -> str:
    """Writes the timing to the folder of the job's result, beside its other files. Returns the path. Raises
    StoreError."""
    path = result_dir / APPLIED_FILE
    with boundary(StoreError, f"cannot write {path}"):
        path.write_bytes(encode(timing))
    return str(path)


def read_applied(path: Path) -> AppliedTiming | None:
    """Reads the timing that a job wrote to `path`, None if there is none."""
    return decode(path.read_bytes(), AppliedTiming) if path.is_file() else None
