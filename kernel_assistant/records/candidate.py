"""Candidate: a launch plan and its sources. No Python of a candidate ever runs.

Every kernel takes one struct as its argument. For each kernel name (symbol) of the plan, the struct is generated into
`plan.h`:

    typedef struct { const float* x0; float* out0; int64_t rows; } softmax_rows_args;

CPU:   extern "C" void softmax_rows(const softmax_rows_args* a);
CUDA:  extern "C" __global__ void softmax_rows(const __grid_constant__ softmax_rows_args a);

On CUDA the plan carries grid, block and dynamic shared memory as expressions, so that a candidate has no host code.
Integer expressions range over the plan's dimensions: `B*16`, `cdiv(B*1024, 4)`, `min(B, 128)`.

A launch with `library` calls an operation of cuBLASLt or cuDNN instead (CUDA only, `records/library.py`); a launch with
`call` calls an operator of PyTorch, as the module itself does (`records/residual.py`).
"""

from __future__ import annotations

from kernel_assistant.records.codec import Record, content_hash
from kernel_assistant.records.graph import DTYPE_BYTES
from kernel_assistant.records.library import FLOATS, buffer_fields, check_library_launch
from kernel_assistant.records.residual import ResidualCall


class BufferSpec(Record, frozen=True, kw_only=True):
    """A dense buffer that kernels read or write, contiguous unless it has `strides` (in elements). Sizes and strides
    are integer expressions over the plan's dimensions, such as `B*16`."""

    name: str
    dtype: str
    shape: tuple[str, ...]
    strides: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise ValueError(f"buffer {self.name}: unknown dtype {self.dtype!r}")
        if not self.name.isidentifier():
            raise ValueError(f"buffer name {self.name!r} is not an identifier")


class Launch(Record, frozen=True, kw_only=True):
    """One launch. `args` has a pair (field, value) for each field of the kernel's struct, in order; a value is a
    buffer's name or an integer expression.

    With `library` (an operation such as "cublaslt.matmul") there is no kernel: `symbol` is a label, `settings` are the
    static settings of the operation, and grid, block and shared memory keep their defaults. With `call` there is no
    kernel either: the fields in `args` are names of the graph's values in `call.specs`, each paired with a buffer.
    """

    symbol: str
    args: tuple[tuple[str, str], ...]
    grid: tuple[str, str, str] = ("1", "1", "1")
    block: tuple[str, str, str] = ("1", "1", "1")
    shared: str = "0"
    library: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    call: ResidualCall | None = None

    def __post_init__(self) -> None:
        if not self.symbol.isidentifier():
            raise ValueError(f"symbol {self.symbol!r} is not an identifier")
        fields = [field for field, _ in self.args]
        if len(set(fields)) != len(fields) or not all(field.isidentifier() for field in fields):
            raise ValueError(f"{self.symbol}: argument fields must be distinct identifiers")
        if self.library:
            check_library_launch(self.library, self.args, self.settings)
        elif self.settings:
            raise ValueError(f"{self.symbol}: settings belong to library launches")
        if self.call is not None and (self.library or set(fields) != set(self.call.specs)):
            raise ValueError(f"{self.symbol}: a residual call pairs exactly its values with buffers")
        geometry = (self.grid, self.block, self.shared)
        if not self.is_kernel and geometry != (("1", "1", "1"), ("1", "1", "1"), "0"):
            raise ValueError(f"{self.symbol}: what is no kernel has no grid, block or shared memory")

    @property
    def is_kernel(self) -> bool:
        """Whether the launch runs a kernel, rather than an operation of a library or a call of PyTorch."""
        return not self.library and self.call is None


class Plan(Record, frozen=True, kw_only=True):
    """The launches to run, in order, and the buffers that they use.

    `inputs` are the graph's inputs, parameters and buffers that the kernels read, under their names in the graph;
    `outputs` are the module's tensor outputs in order; `scratch` is uninitialised memory that lives for one call. The
    launches in `prepare` fill the buffers in `packed`: they run once, and again when a parameter's version changes.
    `residual` names the graph nodes that PyTorch still runs (none: our kernels compute everything). `schedule` is the
    schedule as text.
    """

    target: str
    dims: tuple[str, ...]
    inputs: tuple[BufferSpec, ...]
    outputs: tuple[BufferSpec, ...]
    launches: tuple[Launch, ...]
    scratch: tuple[BufferSpec, ...] = ()
    packed: tuple[BufferSpec, ...] = ()
    prepare: tuple[Launch, ...] = ()
    residual: tuple[str, ...] = ()
    schedule: str = ""
    version: int = 1

    def __post_init__(self) -> None:
        if self.target not in ("cpu", "cuda"):
            raise ValueError(f"unknown target {self.target!r}")
        names = [spec.name for spec in self.buffers]
        if len(set(names)) != len(names):
            raise ValueError("buffer names must be distinct")
        if not self.launches:
            raise ValueError("a plan needs at least one launch")
        if self.residual != tuple(launch.call.call.name for launch in self.launches if launch.call):
            raise ValueError("residual names the nodes of the residual calls, in order")
        if len(set(self.residual)) != len(self.residual):
            raise ValueError("a node is called twice")
        signatures: dict[str, tuple[tuple[str, str], ...]] = {}
        for launch in (*self.prepare, *self.launches):
            if launch.library:
                self._check_library(launch)
                continue
            if launch.call is not None:
                self._check_call(launch, launch.call)
                continue
            kinds = tuple((field, self._kind(value)) for field, value in launch.args)
            if signatures.setdefault(launch.symbol, kinds) != kinds:
                raise ValueError(f"{launch.symbol} is launched with two different argument structs")

    @property
    def buffers(self) -> tuple[BufferSpec, ...]:
        return (*self.inputs, *self.outputs, *self.scratch, *self.packed)

    def _check_library(self, launch: Launch) -> None:
        if self.target != "cuda":
            raise ValueError(f"{launch.symbol}: library launches are for CUDA")
        if launch in self.prepare:
            raise ValueError(f"{launch.symbol}: prepare takes kernels only")
        buffers = buffer_fields(launch.library, launch.settings)
        kinds = {field: self._kind(value) for field, value in launch.args}
        dtypes = {kinds[field] for field in buffers}
        if len(dtypes) != 1 or not dtypes <= set(FLOATS):
            raise ValueError(f"{launch.symbol}: {', '.join(buffers)} must be buffers of one floating dtype")
        if any(kind != "size" for field, kind in kinds.items() if field not in buffers):
            raise ValueError(f"{launch.symbol}: sizes must be integer expressions")
        target = dict(launch.args)["out"]
        if target not in {spec.name for spec in (*self.outputs, *self.scratch)}:
            raise ValueError(f"{launch.symbol}: out must be an output or scratch")
        if target in {value for field, value in launch.args if field != "out"}:
            raise ValueError(f"{launch.symbol}: out must not be read")

    def _check_call(self, launch: Launch, call: ResidualCall) -> None:
        if launch in self.prepare:
            raise ValueError(f"{launch.symbol}: prepare takes kernels only")
        for field, value in launch.args:
            if self._kind(value) != call.specs[field].dtype:
                raise ValueError(f"{launch.symbol}: {field} is {call.specs[field].dtype}, {value} is not")
        buffers = dict(launch.args)
        written = [buffers[name] for name in call.results]
        if not set(written) <= {spec.name for spec in (*self.outputs, *self.scratch)}:
            raise ValueError(f"{launch.symbol}: results must be outputs or scratch")
        if len(set(written)) != len(written) or set(written) & {buffers[name] for name in call.reads}:
            raise ValueError(f"{launch.symbol}: each result needs a buffer that nothing else of the call uses")
        before = self.launches[: self.launches.index(launch)]
        if set(written) & {value for other in before for _, value in other.args}:
            raise ValueError(f"{launch.symbol}: the buffer of a result is used before it")

    def _kind(self, value: str) -> str:
        for spec in self.buffers:
            if spec.name == value:
                return spec.dtype
        return "size"


class Candidate(Record, frozen=True, kw_only=True):
    """A plan and its sources (file name → text). File names end with `.cu`, `.cuh`, `.cpp` or `.h`; the only folder is
    `ka/`."""

    plan: Plan
    sources: dict[str, str]
    origin: str = "user"

    def __post_init__(self) -> None:
        for name in self.sources:
            stem, _, suffix = (plain := name.removeprefix("ka/")).rpartition(".")
            if "/" in plain or not stem or stem.startswith(".") or suffix not in ("cu", "cuh", "cpp", "h"):
                raise ValueError(f"source file name {name!r}: want NAME.cu, .cuh, .cpp or .h without folders")
        if not self.sources:
            raise ValueError("a candidate needs at least one source file")

    def hash(self) -> str:
        """Returns the hash of plan and sources, in hexadecimal; the origin does not affect it."""
        return content_hash([self.plan, self.sources])
