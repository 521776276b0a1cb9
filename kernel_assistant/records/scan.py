"""What a scanned program did: `Recording` is what the recorder in its process wrote, `Scan` what is kept and shown."""

from __future__ import annotations

from kernel_assistant.records.codec import Record


class RecordedSignature(Record, frozen=True, kw_only=True):
    """Calls with equal structure, shapes and plain values. `sample` is the number of the kept inputs, -1 without;
    `exact` says that their values were kept, not only statistics."""

    text: str
    kind: str
    output: str
    calls: int
    seconds: float
    training: bool
    input_bytes: int
    output_bytes: int
    sample: int
    exact: bool


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
    """One class. Seconds as docs/scan.md defines them; `first_seconds` is the part of the inclusive ones that the first
    call of each kind took; `callers` counts calls by the class they came from."""

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


class Recording(Record, frozen=True, kw_only=True):
    """One process of a program."""

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
    calls_seconds: float
    overhead_seconds: float
    calls: int
    ended: str
    failure: str
    skipped: dict[str, int]
    search_path: tuple[str, ...]
    classes: tuple[RecordedClass, ...]

    @property
    def net_seconds(self) -> float:
        """Wall time without what the recorder itself took."""
        return max(self.wall_seconds - self.overhead_seconds, 1e-9)


class Sample(Record, frozen=True, kw_only=True):
    """Kept inputs number `number` of a class, and what they look like."""

    number: int
    text: str
    exact: bool


class ScannedConfiguration(Record, frozen=True, kw_only=True):
    """Instances of a class with parameters and plain attributes of their own, called in one way.

    Ways differ in structure, dtypes, ranks and order in memory. `seconds` are inclusive, of the calls that were kept.
    """

    seconds: float
    folder: str
    training: bool
    samples: tuple[Sample, ...]


class ScannedClass(Record, frozen=True, kw_only=True):
    """One row of the ranking. Seconds are of one run of the whole program.

    `share_seconds` counts for this class alone, the shares of all classes add up; `floor_seconds` is what must remain
    of it at least; `saved_seconds` is what applied kernels could save at most; `first_seconds` is the part of
    `inclusive_seconds` that the first call of each kind took, warm-up and all. `folder` holds the samples, "" without;
    `problem` says why the class cannot be optimized as it is. They are those of the configuration that took most time;
    `more` has the others that were kept, `CLASS#2`, `CLASS#3`, ….
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
    first_seconds: float = 0.0

    @property
    def key(self) -> str:
        return f"{self.module}.{self.qualname}"


class Scan(Record, frozen=True, kw_only=True):
    """One scan of a command. `calls_seconds` is the span from the first call of a module to the last, recorder
    subtracted. `applied` are the `FILE:CLASS` whose kernels were in place when it ran; `runs` the wall
    seconds of each run, recorder subtracted."""

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
