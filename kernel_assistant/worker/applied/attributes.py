"""Converts the attributes of a module, apart from its tensors, to texts that can be compared.

The judge stores them at verification and an applied package compares them later, because constants such as `eps` are
compiled into a kernel. Both use this file."""

from __future__ import annotations

import enum
import functools
import hashlib
import re
import types
from typing import Any

import torch

#: Attributes that `nn.Module.__init__` creates, except the training flag, which is compared like any other attribute.
INTERNAL = frozenset(vars(torch.nn.Module())) - {"training"}

#: The parts of a scripted class's code that name its origin: comments with locations, and the modules of classes.
_WHERE = re.compile(r"#.*|(?<=module )[\w.]*\.(?=\w)|(?<=: )[A-Za-z_][\w.]*\.(?=\w)")

#: Most elements of an array of NumPy that are compared. Larger ones are no part of a graph.
MOST_COMPARED = 4096

_LITERAL = (type(None), bool, int, float, complex, str, bytes)
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_TORCH = (torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format)


def freeze(value: Any, depth: int = 4) -> str:
    """Returns a text that is equal for equal values; 1, 1.0 and True give different texts. For a tensor, and for a
    NumPy array with more than MOST_COMPARED elements, only dtype and shape count.

    Functions and classes are represented by their names, other objects by type and attributes, at most `depth` levels
    down."""
    if isinstance(value, _TORCH) or type(value) in _LITERAL:
        return repr(value)
    if isinstance(value, torch.Tensor):
        return f"tensor {value.dtype} {tuple(value.shape)}"
    if is_of_numpy(value):
        held = hashlib.sha256(value.tobytes()).hexdigest()[:16] if value.size <= MOST_COMPARED else ""
        return f"{type(value).__qualname__} {value.dtype} {value.shape} {held}"
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, functools.partial):
        return f"partial {freeze(value.func, depth)} {freeze(value.args, depth)} {freeze(value.keywords, depth)}"
    if callable(value) and (isinstance(value, _NAMED) or not hasattr(value, "__dict__")):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    if depth == 0 or isinstance(value, torch.nn.Module):
        return type(value).__qualname__
    return _freeze_container(value, depth - 1)


def _freeze_container(value: Any, depth: int) -> str:
    if isinstance(value, (tuple, list)):
        inner = ", ".join(freeze(item, depth) for item in value)
        if type(value) in (tuple, list):
            return f"[{inner}]" if type(value) is list else f"({inner}{',' if len(value) == 1 else ''})"
        return f"{type(value).__qualname__}({inner})"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(freeze(item, depth) for item in value)) + "}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{freeze(key, depth)}: {freeze(item, depth)}" for key, item in value.items()) + "}"
    # `functools.wraps` copies `__module__`, but a file may be imported under another name.
    state = {
        key: item
        for key, item in getattr(value, "__dict__", {}).items()
        if key != "__module__" and not _is_of_process(key, item)
    }
    return type(value).__qualname__ + freeze(state, depth)


def _is_of_process(key: str, item: Any) -> bool:
    """Whether an attribute is a stored hash, such as the one in the GenerationConfig of every causal model of
    transformers. Stored hashes are not compared, because Python's hash of a text differs from process to process."""
    return key.startswith("_") and key.endswith("hash") and type(item) is int


def is_of_numpy(value: Any) -> bool:
    """Whether the value is a NumPy array or a NumPy scalar. Does not import NumPy."""
    return type(value).__module__ == "numpy" and hasattr(value, "tobytes")


def may_change_in_place(value: Any) -> bool:
    """Whether the value is a NumPy array of at most MOST_COMPARED elements. Such an array can change in place, and
    since `freeze` compares its elements, each call has to compare them."""
    return is_of_numpy(value) and hasattr(value, "setflags") and value.ndim > 0 and value.size <= MOST_COMPARED


def is_atomic(value: Any) -> bool:
    """Whether the value can change only by being replaced, so that comparing its identity is enough to notice a
    change."""
    if isinstance(value, tuple):
        return all(is_atomic(item) for item in value)
    return isinstance(value, (*_LITERAL, *_NAMED, *_TORCH, enum.Enum, torch.Tensor, torch.nn.Module))


def is_state(key: str) -> bool:
    """Whether the attribute `key` is the user's own: `nn.Module` does not create it, and its name does not begin and
    end with two underscores, as names of Python and torch do."""
    return key not in INTERNAL and not (key.startswith("__") and key.endswith("__"))


def module_attributes(module: torch.nn.Module) -> dict[str, dict[str, str]]:
    """Returns, for each submodule path ("" for the module itself), a dict from attribute name to the text that `freeze`
    makes of the value. `training` flags are included.

    The keys "(class)", "(parameters)" and "(buffers)" are added to each dict; the latter two list the names that are
    not None."""
    return {path: submodule_attributes(child) for path, child in module.named_modules(remove_duplicate=False)}


def same_attributes(module: torch.nn.Module, verified: dict[str, dict[str, str]]) -> bool:
    """Whether a module still has the attributes in `verified`, a dict as `module_attributes` returns it.

    A private attribute that only the module or only `verified` has is ignored, unless it hides an attribute of the
    class: libraries mark modules with such attributes. transformers, for example, marks the modules of a model that it
    has initialised."""
    children = dict(module.named_modules(remove_duplicate=False))
    return children.keys() == verified.keys() and all(
        _same(child, submodule_attributes(child), verified[path]) for path, child in children.items()
    )


def _same(module: torch.nn.Module, attributes: dict[str, str], verified: dict[str, str]) -> bool:
    one_has = attributes.keys() ^ verified.keys()
    if any(not key.startswith("_") or hasattr(type(module), key) for key in one_has):
        return False
    return all(attributes[key] == text for key, text in verified.items() if key in attributes)


def _of_script(module: Any) -> dict[str, str]:
    """Returns `{"(script)": text}`: a hash of the code and values of a module that TorchScript has compiled, because
    its Python attributes do not show these. Comments and the names of Python modules in the code are left out, because
    they depend on how the file was imported."""
    try:
        text = module._c.dump_to_str(True, True, False)
    except RuntimeError:
        return {"(script)": module.original_name}
    text = _WHERE.sub("", text)
    return {"(script)": hashlib.sha256(text.encode()).hexdigest()[:16]}


def submodule_attributes(module: torch.nn.Module) -> dict[str, str]:
    """Returns the attributes of one module without its children: attribute name → text made by `freeze`. The keys
    "(class)", "(parameters)" and "(buffers)" are added, as in `module_attributes`."""
    state = vars(module)
    scripted = isinstance(module, torch.jit.ScriptModule)
    attributes = (
        _of_script(module) if scripted else {key: freeze(value) for key, value in state.items() if is_state(key)}
    )
    attributes["(class)"] = type(module).__qualname__
    for kind in ("_parameters", "_buffers"):
        attributes[f"({kind[1:]})"] = ", ".join(sorted(key for key, value in state[kind].items() if value is not None))
        attributes.update((key, "None") for key, value in state[kind].items() if value is None)
    return attributes
