"""The records of a scan, a run of the user's program in which its modules are timed: a `Recording` is written by each
process of the program, a `Scan` is stored and shown to the user."""

from __future__ import annotations

from kernel_assistant.records.codec import Record


class RecordedSignature(Record, frozen=True, kw_only=True):
    """The calls of a class whose inputs have equal structure, shapes and plain values. `counted_calls` and `seconds`
    are those in the part of the run that counts (see `Recording`). `sample` is the number under which one call's inputs
    were saved, -1 if none were; `exact` says that their values were saved, not only statistics. `objects` describes
    arguments that no kernel accepts."""

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
    """Instances of a class with equal parameter shapes and plain attributes. `kept` says what was saved: "module" (the
    instance itself), "init" (its constructor arguments) or "" (nothing; `notes` say why)."""

    folder: str
    parameter_bytes: int
    kept: str
    notes: tuple[str, ...]
    signatures: tuple[RecordedSignature, ...]

    @property
    def seconds(self) -> float:
        return sum(signature.seconds for signature in self.signatures)


class RecordedClass(Record, frozen=True, kw_only=True):
    """The times of one class in one process. Seconds are defined in docs/scan.md, and are times in the part of the run
    that counts. `warm_seconds` are the inclusive seconds without the first call of each signature, `first_seconds` the
    seconds of these first calls in the whole program. `products_seconds` is the time of matrix products and
    convolutions; `unserved_seconds` maps a reason why kernels could not run to seconds. `callers` counts calls by the
    calling class."""

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
    """The times of one process of a scanned program. `startup_seconds` end with the first call of a module;
    `calls_seconds` go from there to the end of the last call. `loop_seconds` (0 without a loop) also end there, but
    begin with the second outermost call of one instance of the class `loop`. `rounds` is the number of its outermost
    calls from the second on. Neither `calls_seconds` nor `loop_seconds` include the recorder's own time.

    The part of the run that counts is the loop or, without a loop, all calls. `compiled` are the classes `FILE:CLASS`
    that ran inside torch.compile, `scripted` those inside torch.jit.script.
    """

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
        """Wall time in seconds, less the time that the recorder itself took."""
        return max(self.wall_seconds - self.overhead_seconds, 1e-9)

    @property
    def counted_seconds(self) -> float:
        return max(self.loop_seconds or self.calls_seconds, 1e-9)


class Sample(Record, frozen=True, kw_only=True):
    """Inputs of a class that a scan saved: their number, and a text that describes their shapes and types. `exact` says
    that their values were saved. `calls` is the number of calls in the program that had such inputs (0: not known, in
    older scans)."""

    number: int
    text: str
    exact: bool
    calls: int = 0


class ScannedConfiguration(Record, frozen=True, kw_only=True):
    """Instances of a class with equal parameter shapes and plain attributes, called with one kind of inputs.

    Kinds differ in structure, dtypes, ranks and order in memory. Only calls whose inputs were kept count here:
    `seconds` are their inclusive seconds in the part of the run that counts, `calls` their number in the whole program
    (0: not known, in older scans).
    """

    seconds: float
    folder: str
    training: bool
    samples: tuple[Sample, ...]
    calls: int = 0


class ScannedClass(Record, frozen=True, kw_only=True):
    """One row of the ranking of classes. Seconds are times in the part of one run that counts: `Scan.counted_seconds`.

    `share_seconds` is the time of this class without other classes inside it, so the shares of all classes add up to
    the whole. `floor_seconds` is the part of `share_seconds` that must remain on any device as fast as this one;
    `saved_seconds` is the most that applied kernels could save. `speedup_at_floor` and `speedup_at_double` are the
    program's speed-ups if this class reaches its floor, and if it becomes twice as fast. `warm_seconds` are the
    inclusive seconds without the first call of each signature (None in older scans), `first_seconds` the seconds of
    these first calls in the whole program.

    `folder` has the saved inputs, "" if there are none; `problem` says why the class cannot be optimized as it is.
    `folder`, `training`, `samples`, `main_seconds` and `main_calls` are about the configuration that took most time;
    `more` has the other configurations that were kept: `CLASS#2`, `CLASS#3`, …. `objects` are arguments in some calls
    of the class that no kernel accepts (`past_key_values is a DynamicCache`).
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
        """The configurations (instances with equal parameter shapes, called with one kind of inputs) whose inputs were
        saved, in the order of their numbers; () for a class that cannot be optimized."""
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
    """One scan of a command. `startup_seconds`, `calls_seconds`, `loop_seconds`, `loop` and `rounds` are as in
    `Recording`. `applied` names the classes (`FILE:CLASS`) that had applied kernels during the scan. `runs` are the
    wall seconds of each run, `counted_runs` the seconds of the part that counts; both are without the recorder's own
    time. Older scans have neither a loop nor `counted_runs`."""

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
        """The seconds of the part of the run that counts, to which shares and gains refer: the loop or, without a loop,
        the time from the first call to the last."""
        return max(self.loop_seconds or self.calls_seconds, 1e-9)

    def spec(self, row: ScannedClass) -> str:
        """Returns the text by which commands select the class of `row`: `3:Norm` (number of the scan, class), with the
        class's module if two classes have this name."""
        alone = sum(one.name == row.name for one in self.classes) == 1
        return f"{self.id}:{row.name if alone else row.key}"
