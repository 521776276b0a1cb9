"""The records of a scanned program: a `Recording` is written by the recorder in one process, a `Scan` is stored and
shown to the user.
"""

from __future__ import annotations

from kernel_assistant.records.codec import Record


class RecordedSignature(Record, frozen=True, kw_only=True):
    """Calls with equal structure, shapes and plain values. `counted_calls` and `seconds` are of the part that counts
    (see `Recording`). `sample` is the number of the kept inputs, -1 without; `exact`: their values were kept, not only
    statistics. `objects`: arguments that no kernel accepts.
    """

    text: str
    kind: str
    output: str
    calls: int
    counted_calls: int
    seconds: float
    training: bool
    input_bytes: int
    output_bytes: int
    sample: int
    exact: bool
    objects: tuple[str, ...] = ()


class RecordedConfiguration(Record, frozen=True, kw_only=True):
    """Instances of a class that are alike. `kept` is "module", "init" or "" (with `notes` that say why)."""

    folder: str
    parameter_bytes: int
    kept: str
    notes: tuple[str, ...]
    signatures: tuple[RecordedSignature, ...]

    @property
    def seconds(self) -> float:
        return sum(signature.seconds for signature in self.signatures)


class RecordedClass(Record, frozen=True, kw_only=True):
    """One class. Seconds as docs/scan.md defines them, of the part that counts; `warm_seconds` are the inclusive ones
    without the first call of each kind. `first_seconds` are those of the first calls in the whole program; `callers`
    counts calls by the class they came from.
    """

    name: str
    qualname: str
    module: str
    path: str
    installed: bool
    calls: int
    inclusive_seconds: float
    own_seconds: float
    share_seconds: float
    products_seconds: float
    unserved_seconds: dict[str, float]
    callers: dict[str, int]
    container: bool
    uncounted: int
    configurations: tuple[RecordedConfiguration, ...]
    first_seconds: float = 0.0
    warm_seconds: float = 0.0


class Recording(Record, frozen=True, kw_only=True):
    """One process of a program. `startup_seconds` end with the first call of a module, `calls_seconds` go from there to
    the end of the last call, and `loop_seconds` (0 without a loop) to the same end from the second outermost call of an
    instance of the class `loop`, the first of `rounds`; the last two without the recorder's own time. The part that
    counts is the loop's, else that of all calls. `compiled` are the classes `FILE:CLASS` that ran inside torch.compile,
    `scripted` those inside torch.jit.script."""

    version: int
    pid: int
    argv: tuple[str, ...]
    folder: str
    main: str
    python: str
    torch: str
    clock: str
    device: str
    wall_seconds: float
    startup_seconds: float
    calls_seconds: float
    loop_seconds: float
    loop: str
    rounds: int
    overhead_seconds: float
    calls: int
    ended: str
    failure: str
    skipped: dict[str, int]
    search_path: tuple[str, ...]
    classes: tuple[RecordedClass, ...]
    compiled: tuple[str, ...] = ()
    scripted: tuple[str, ...] = ()

    @property
    def net_seconds(self) -> float:
        """Wall time, less the time that the recorder itself took."""
        return max(self.wall_seconds - self.overhead_seconds, 1e-9)

    @property
    def counted_seconds(self) -> float:
        return max(self.loop_seconds or self.calls_seconds, 1e-9)


class Sample(Record, frozen=True, kw_only=True):
    """Kept inputs number `number` of a class, with a description of their shapes and types; `calls` of the program had
    them (0: not known, in older scans)."""

    number: int
    text: str
    exact: bool
    calls: int = 0


class ScannedConfiguration(Record, frozen=True, kw_only=True):
    """Instances of a class with parameters and plain attributes of their own, called in one way.

    Ways differ in structure, dtypes, ranks and order in memory. `seconds` are inclusive, of the part that counts, and
    `calls` are all of the program, both of calls whose inputs were kept (0 calls: not known, in older scans).
    """

    seconds: float
    folder: str
    training: bool
    samples: tuple[Sample, ...]
    calls: int = 0


class ScannedClass(Record, frozen=True, kw_only=True):
    """One row of the ranking. Seconds are of the part of one run that counts: `Scan.counted_seconds`.

    `share_seconds` is the time of this class without other classes inside it, so the shares of all classes add up to
    the whole; `floor_seconds` is the part of it that must remain on any device as fast as this one; `saved_seconds` is
    what applied kernels could save at most; `warm_seconds` are the inclusive ones without the first call of each kind
    (None in older scans), `first_seconds` those of the first calls in the whole program. `folder` holds the samples, ""
    without; `problem` says why the class cannot be optimized as it is. `folder`, `training`, `samples`, `main_seconds`
    and `main_calls` are about the configuration that took most time; `more` has the other ones that were kept:
    `CLASS#2`, `CLASS#3`, …. `objects` are arguments of some of its calls that no kernel accepts
    (`past_key_values is a DynamicCache`).
    """

    name: str
    qualname: str
    module: str
    path: str
    line: int
    installed: bool
    calls: int
    share_seconds: float
    inclusive_seconds: float
    products_seconds: float
    floor_seconds: float
    unserved_seconds: dict[str, float]
    saved_seconds: float
    speedup_at_floor: float
    speedup_at_double: float
    folder: str = ""
    training: bool = False
    samples: tuple[Sample, ...] = ()
    problem: str = ""
    more: tuple[ScannedConfiguration, ...] = ()
    objects: tuple[str, ...] = ()
    first_seconds: float = 0.0
    warm_seconds: float | None = None
    main_seconds: float = 0.0
    main_calls: int = 0

    @property
    def key(self) -> str:
        return f"{self.module}.{self.qualname}"

    @property
    def configurations(self) -> tuple[ScannedConfiguration, ...]:
        """All that were kept, in the order of their numbers; none for a class that cannot be optimized."""
        if not self.folder:
            return ()
        others = sum(one.seconds for one in self.more)
        main = ScannedConfiguration(
            seconds=self.main_seconds or max(self.inclusive_seconds - others, 0.0),
            folder=self.folder,
            training=self.training,
            samples=self.samples,
            calls=self.main_calls,
        )
        return (main, *self.more)


class Scan(Record, frozen=True, kw_only=True):
    """One scan of a command. `startup_seconds`, `calls_seconds`, `loop_seconds`, `loop` and `rounds` as in `Recording`.
    `applied` are the `FILE:CLASS` whose kernels were in place when it ran; `runs` the wall seconds of each run, and
    `counted_runs` those of the part that counts, recorder subtracted. Older scans have neither a loop nor
    `counted_runs`."""

    id: str
    command: tuple[str, ...]
    folder: str
    created: float
    exit_code: int
    target: str
    device: str
    clock: str
    python: str
    torch: str
    main: str
    ended: str
    wall_seconds: float
    overhead_seconds: float
    modules_seconds: float
    calls_seconds: float
    runs: tuple[float, ...]
    bandwidth: float
    notes: tuple[str, ...]
    applied: tuple[str, ...]
    search_path: tuple[str, ...]
    classes: tuple[ScannedClass, ...]
    startup_seconds: float = 0.0
    loop_seconds: float = 0.0
    loop: str = ""
    rounds: int = 0
    counted_runs: tuple[float, ...] = ()

    @property
    def counted_seconds(self) -> float:
        """The seconds that shares and gains are of: those of the loop, else those from the first call to the last."""
        return max(self.loop_seconds or self.calls_seconds, 1e-9)

    def spec(self, row: ScannedClass) -> str:
        """What commands call a class: `3:Norm`, with its module if two classes have the name."""
        alone = sum(one.name == row.name for one in self.classes) == 1
        return f"{self.id}:{row.name if alone else row.key}"
