"""Finds operators in transformers: classes of modules that are parts of models, such as norms and MLPs ("blocks"). They
are found in the source text and imported only when they are used."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from kernel_assistant_training.tasks.candidates.arguments import CannotBuild, Value
from kernel_assistant_training.tasks.candidates.operators import Operator, Use, arguments_of, forward_extra

_CLASS = re.compile(r"^class (\w+)\(nn\.Module\):", re.MULTILINE)
_BLOCK = re.compile(r"(Norm|MLP|Mlp|FeedForward|FFN|GLU|Activation|Intermediate|Output|Rotary|Gate|Pooler|Projector)")
#: Configuration attributes that are set to small values if the configuration has them.
_SMALL = {
    "hidden_size": 0,
    "d_model": 0,
    "n_embd": 0,
    "embed_dim": 0,
    "dim": 0,
    "intermediate_size": 512,
    "ffn_dim": 512,
    "d_ff": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def block_operators() -> list[Operator]:
    """Returns the blocks of the installed transformers, sorted by name; [] if transformers is not installed. Imports no
    model."""
    spec = find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        return []
    return list(_blocks(Path(spec.submodule_search_locations[0]) / "models"))


def _blocks(folder: Path) -> Iterator[Operator]:
    for file in sorted(folder.glob("*/modeling_*.py")):
        module = f"transformers.models.{file.parent.name}.{file.stem}"
        for name in sorted(_CLASS.findall(file.read_text(encoding="utf-8"))):
            if _BLOCK.search(name):
                yield Operator(f"{module}.{name}", "transformers", _writer(module, name))


def _writer(module: str, name: str) -> Callable[[Value, Random], Use]:
    def write(value: Value, random: Random) -> Use:
        kind = getattr(_imported(module), name)
        parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
        imports = [f"from {module} import {name}"]
        if parameters and parameters[0].name == "config":
            if any(one.default is one.empty for one in parameters[1:]):
                raise CannotBuild("a constructor with more than a configuration")
            config, more = _config(parameters[0], module, value)
            words, imports = [config], [*imports, more]
        else:
            words = arguments_of(kind.__init__, value, random)
        extra = forward_extra(kind, value, random)
        operands = "".join(f", {{{index}}}" for index in range(len(extra)))
        cast = "" if value.dtype == "float32" else f".to(torch.{value.dtype})"
        return Use(
            f"{module}.{name}",
            "transformers",
            f"{{self}}({{x}}{operands})",
            f"{name}({', '.join(words)}){cast}",
            tuple(extra),
            tuple(imports),
        )

    return write


@cache
def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise CannotBuild(f"{type(error).__name__} when its module is imported") from error


def _config(parameter: inspect.Parameter, module: str, value: Value) -> tuple[str, str]:
    """Returns source code that makes the argument `parameter`, a configuration of transformers with the sizes of
    `value`, and the line that imports its class. `module` is the module of the model. Raises CannotBuild if there is no
    such class or it refuses the sizes."""
    from transformers import PretrainedConfig

    home = module.replace(".modeling_", ".configuration_")
    kinds: dict[str, Any] = {
        name: kind
        for name, kind in vars(_imported(home)).items()
        if inspect.isclass(kind) and issubclass(kind, PretrainedConfig) and kind.__module__ == home
    }
    annotation = str(getattr(parameter.annotation, "__name__", parameter.annotation)).strip("'\"")
    name = annotation if annotation in kinds else next(iter(kinds), "")
    if not name:
        raise CannotBuild("no class of its configuration")
    try:
        known = kinds[name]()
        sizes = {one: size or value.last for one, size in _SMALL.items() if isinstance(getattr(known, one, None), int)}
        kinds[name](**sizes)
    except Exception as error:
        raise CannotBuild(f"{type(error).__name__} from its configuration") from error
    written = ", ".join(f"{one}={size}" for one, size in sizes.items())
    return f"{name}({written})", f"from {home} import {name}"
