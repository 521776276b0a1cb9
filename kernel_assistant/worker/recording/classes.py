"""Counts the calls of one module class, and of each of its configurations, and sums their times while the program
runs."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from dataclasses import dataclass, field

import torch

from .signature import Key, spanned_bytes

#: Containers, which compute almost nothing: the time of torch.nn leaf classes in them counts for the class above.
_CONTAINERS = {
    "Sequential",
    "ModuleList",
    "ModuleDict",
    "DataParallel",
    "DistributedDataParallel",
    "FullyShardedDataParallel",
}
#: Matrix products and convolutions, which vendor libraries run close to the hardware's limit.
_PRODUCTS = (
    torch.nn.Linear,
    torch.nn.Bilinear,
    torch.nn.modules.conv._ConvNd,
    torch.nn.MultiheadAttention,
    torch.nn.RNNBase,
    torch.nn.RNNCellBase,
)
MOST_SIGNATURES = 64
MOST_CONFIGURATIONS = 16


@dataclass
class CallTimes:
    """The number of a group of calls, and the sum of their seconds."""

    calls: int = 0
    seconds: float = 0.0


@dataclass
class ClassTimes:
    """Seconds of one class, under the names that docs/scan.md defines: `inclusive` (whole calls), `own` (without the
    modules inside), `share` (`own` with torch.nn leaf modules inside), `products` (matrix products and convolutions in
    `share`). `first` is the part of `inclusive` that the first call of each signature took. `unserved` maps a reason,
    such as "autocast", to the part of `share` in which applied kernels would not run for it."""

    inclusive: float = 0.0
    first: float = 0.0
    own: float = 0.0
    share: float = 0.0
    products: float = 0.0
    unserved: dict[str, float] = field(default_factory=dict)

    def add(self, other: ClassTimes) -> None:
        self.inclusive += other.inclusive
        self.first += other.first
        self.own += other.own
        self.share += other.share
        self.products += other.products
        for reason, seconds in other.unserved.items():
            self.leave(reason, seconds)

    def leave(self, reason: str, seconds: float) -> None:
        """Adds `seconds` to the time in which applied kernels would not run for this reason; does nothing if the reason
        is empty."""
        if reason:
            self.unserved[reason] = self.unserved.get(reason, 0.0) + seconds


@dataclass
class ObservedSignature:
    """Calls of one configuration with equal signatures (shapes, dtypes and plain arguments, `signature.py`). `sample`
    is the number of the file with their saved inputs, -1 if there is none; `exact` says whether the file has the values
    of all tensors, `refused` that saving failed; `objects` describes the arguments that no kernel accepts."""

    number: int
    text: str
    kind: str
    input_bytes: int
    training: bool
    calls: int = 0
    phases: dict[int, CallTimes] = field(default_factory=dict)
    output_bytes: int = 0
    output: str = ""
    sample: int = -1
    exact: bool = True
    refused: bool = False
    objects: tuple[str, ...] = ()

    def at(self, phase: int) -> CallTimes:
        return self.phases.get(phase) or self.phases.setdefault(phase, CallTimes())

    def since(self, phase: int) -> CallTimes:
        """Returns the calls and seconds of phase number `phase` (a section of the program's run, `rounds.py`) and all
        later phases together."""
        phases = [one for number, one in list(self.phases.items()) if number >= phase]
        return CallTimes(sum(one.calls for one in phases), sum(one.seconds for one in phases))


@dataclass
class ObservedConfiguration:
    """The instances of a class that have equal parameter shapes and plain attributes. `bytes` counts distinct
    parameters and buffers. `kept` says what was saved of them: "module", "init" (the constructor arguments) or "";
    `refused` names what could not be saved, and `notes` say why."""

    number: int
    bytes: int
    device: str
    signatures: dict[Key, ObservedSignature] = field(default_factory=dict)
    kept: str = ""
    refused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, line: str) -> None:
        if line not in self.notes:
            self.notes.append(line)


@dataclass
class ObservedClass:
    """One class, with its times in each phase of the program (`rounds.py`). `callers` counts its calls by the class
    that made them, `uncounted` those that exceed the limits on configurations and signatures."""

    number: int
    cls: type
    path: str
    is_torch: bool
    is_container: bool
    is_product: bool
    calls: int = 0
    phases: dict[int, ClassTimes] = field(default_factory=dict)
    callers: dict[str, int] = field(default_factory=dict)
    configurations: dict[Key, ObservedConfiguration] = field(default_factory=dict)
    uncounted: int = 0

    def at(self, phase: int) -> ClassTimes:
        return self.phases.get(phase) or self.phases.setdefault(phase, ClassTimes())

    def since(self, phase: int) -> ClassTimes:
        """Returns the times of phase number `phase` (a section of the program's run) and all later phases together."""
        total = ClassTimes()
        for number, one in list(self.phases.items()):
            if number >= phase:
                total.add(one)
        return total


def describe(cls: type, number: int) -> ObservedClass:
    is_torch = cls.__module__.startswith("torch.")
    return ObservedClass(
        number=number,
        cls=cls,
        path=_source(cls),
        is_torch=is_torch,
        is_container=is_torch and cls.__name__ in _CONTAINERS,
        is_product=issubclass(cls, _PRODUCTS),
    )


def configuration_key(module: torch.nn.Module) -> tuple[Key, int, str]:
    """Returns a key that is equal for instances with equal parameter shapes and plain attributes, the bytes of distinct
    parameters and buffers, and the device type ("" without tensors). Called once for each instance."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    dense = [tensor for _, tensor in tensors if tensor.layout is torch.strided and not _is_lazy(tensor)]
    shapes = tuple((name, _shape(tensor), tensor.dtype) for name, tensor in tensors)
    return (shapes, _attributes(module)), sum(map(spanned_bytes, dense)), dense[0].device.type if dense else ""


def is_installed(path: str) -> bool:
    """Whether a file belongs to an installed package or to Python itself."""
    parts = path.split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    library = os.path.dirname(os.path.abspath(os.__file__))
    return path.startswith((library + os.sep, os.path.join(sys.prefix, "lib") + os.sep))


def _source(cls: type) -> str:
    """Returns the file of a class, "" if it has none. It is determined at the first call, because the file of a script
    is not known any more at exit.
    """
    with contextlib.suppress(OSError, TypeError):
        return os.path.abspath(inspect.getsourcefile(cls) or "")
    return ""


def _attributes(module: torch.nn.Module) -> Key:
    """Returns (name, values) of each attribute that is a number, a string, None, a dtype or a tuple of these, as they
    are at the first call of the instance."""
    plain = (bool, int, float, str, type(None), torch.dtype)
    attributes = {name: value if isinstance(value, tuple) else (value,) for name, value in vars(module).items()}
    return tuple(
        (name, items)
        for name, items in attributes.items()
        if name != "training" and all(isinstance(item, plain) for item in items)
    )


def _shape(tensor: torch.Tensor) -> Key:
    return () if _is_lazy(tensor) else tuple(tensor.shape)


def _is_lazy(tensor: torch.Tensor) -> bool:
    return bool(torch.nn.parameter.is_lazy(tensor))
