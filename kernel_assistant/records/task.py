"""KernelTask: the module to optimize, how it is built, its inputs, and the error policy."""

from __future__ import annotations

from enum import Enum

from kernel_assistant.records.codec import Record, content_hash


class Numerics(str, Enum):
    """Error policy, see `worker/verifying/numerics.py`: how far from float64 a candidate may be."""

    kernelbench = "kernelbench"
    strict = "strict"
    paper = "paper"


class InputSource(str, Enum):
    """Where the inputs of a task come from."""

    get_inputs = "get_inputs"
    comment = "comment"
    pyproject = "pyproject"
    files = "files"
    recorded = "recorded"


class Workload(Record, frozen=True, kw_only=True):
    """One group of input shapes with which a task is verified and timed. `args` is a Python expression for the tuple of
    positional arguments, `kwargs` for the keyword arguments; both are evaluated by the worker in the module's own
    namespace, with `torch` in scope. Empty `args` with source `get_inputs` means: call `get_inputs()`."""

    name: str = "default"
    args: str = ""
    kwargs: str = ""


class KernelTask(Record, frozen=True, kw_only=True):
    """The module to optimize and how to build and call it: the unit of work of every front end and of training.

    `path` is the file as the user named it, absolute; `content` its text (an unsaved editor buffer may differ from the
    disk). `init` is an expression for the constructor's positional arguments, `init_kwargs` for its keyword ones; both
    empty with source `get_inputs` means `get_init_inputs()`. `search_path` goes to the front of sys.path.

    `recording` is the folder in which `scan` kept the module and its calls; the expressions refer to it as `recorded`.
    `installed` says that the file belongs to a package and not to the user: the worker imports it by `module_name`
    instead of executing `content`, and the file must not be edited when a result is applied. `session` names the
    notebook or session into which the class was typed, "" for a class of a file. With a `session`, `path` is a file
    that we made, and there is no file to apply to.
    """

    path: str
    content: str
    class_name: str
    source: InputSource
    workloads: tuple[Workload, ...]
    init: str = ""
    init_kwargs: str = ""
    search_path: tuple[str, ...] = ()
    module_name: str = ""
    target: str = "cpu"
    numerics: Numerics = Numerics.kernelbench
    training: bool = False
    seed: int = 42
    recording: str = ""
    installed: bool = False
    session: str = ""

    def __post_init__(self) -> None:
        if not self.workloads:
            raise ValueError("a task needs at least one workload")
        if self.target not in ("cpu", "cuda"):
            raise ValueError(f"unknown target {self.target!r}")

    @property
    def name(self) -> str:
        """The task's name for people, such as `file.py:Class`."""
        return f"{self.path.rsplit('/', 1)[-1]}:{self.class_name}"

    def hash(self) -> str:
        return content_hash(self)
