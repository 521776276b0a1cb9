"""The records of a scanned program: a `Recording` is written by the recorder in one process, a `Scan` is stored and
shown to the user.
"""

from __future__ import annotations

from kernel_assistant.records.codec import Record


class RecordedSignature(Record, frozen=True, kw_only=True):
    """Calls with equal structure, shapes and plain values. `sample` is the number of the kept inputs, -1 without;
    `exact`: their values were kept, not only statistics. `objects`: arguments that no kernel accepts.
    """

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
    """One class. Seconds as docs/scan.md defines them; `first_seconds` is the part of the inclusive seconds that the
    first call of each kind took; `callers` counts calls by the class they came from.
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


class Recording(Record, frozen=True, kw_only=True):
    """One process of a program. `compiled` are the classes `FILE:CLASS` that ran inside torch.compile, `scripted`
    those inside torch.jit.script."""

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
    compiled: tuple[str, ...] = ()
    scripted: tuple[str, ...] = ()

    @property
    def net_seconds(self) -> float:
        """Wall time, less the time that the recorder itself took."""
        return max(self.wall_seconds - self.overhead_seconds, 1e-9)


class Sample(Record, frozen=True, kw_only=True):
    """Kept inputs number `number` of a class, with a description of their shapes and types."""

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

    `share_seconds` is the time of this class without other classes inside it, so the shares of all classes add up to
    the whole; `floor_seconds` is the part of it that must remain on any device as fast as this one; `saved_seconds` is
    what applied kernels could save at most; `first_seconds` is the part of `inclusive_seconds` that the first call of
    each kind took, warm-up included. `folder` holds the samples, "" without; `problem` says why the class cannot be
    optimized as it is. All of these fields are about the configuration that took most time; `more` names the other
    configurations that were kept: `CLASS#2`, `CLASS#3`, …. `objects` are arguments of some of its calls that no kernel
    accepts (`past_key_values is a DynamicCache`).
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
