"""Makes a `KernelTask` from `FILE[:CLASS]`."""

from __future__ import annotations

import sys
from pathlib import Path

from kernel_assistant.errors import UsageError
from kernel_assistant.records import KernelTask, Numerics
from kernel_assistant.source.declared import Declared, NoInputsError, find_declared, no_inputs
from kernel_assistant.source.find import ModuleClass, find_modules


def build_task(target_spec: str, *, target: str, numerics: Numerics | str, text: str | None = None) -> KernelTask:
    """Returns the task that `target_spec` (`FILE` or `FILE:CLASS`) names.

    `text` is the content of an unsaved editor buffer; without it the file is read. If no class is named, the only
    usable class of the file is taken, else `Model`, else the only class with inputs. Raises UsageError for every
    problem with the file, SeveralClassesError if more than one class fits.
    """
    path, class_name = split_spec(target_spec)
    content = read_text(path) if text is None else text
    modules = find_modules(content, str(path), class_name)
    chosen, declared = _choose(content, path, class_name, modules)
    module_name, search_path = import_location(path)
    return KernelTask(
        path=str(path),
        content=content,
        class_name=chosen.name,
        source=declared.source,
        workloads=declared.workloads,
        init=declared.init,
        init_kwargs=declared.init_kwargs,
        search_path=(search_path,),
        module_name=module_name,
        target=target,
        numerics=Numerics(numerics),
        training=declared.training,
    )


def split_spec(target_spec: str) -> tuple[Path, str]:
    """Returns the absolute path and the class name ("" if there is none) of `FILE` or `FILE:CLASS`. The path of an
    existing file may contain a colon."""
    file, colon, name = target_spec.rpartition(":")
    if not target_spec.strip():
        raise UsageError("no file is named", "give FILE or FILE:CLASS, e.g. model.py:Net")
    if not colon or "/" in name or Path(target_spec).exists():
        return _absolute(target_spec), ""
    return _absolute(file), name


def read_text(path: Path) -> str:
    """Returns the text of a Python file. Raises UsageError if it is missing, a folder, unreadable or not UTF-8."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder", f"name a file in it, e.g. {path / 'model.py'}:Net")
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise UsageError(f"{path} does not exist", "check the path (FILE or FILE:CLASS)") from error
    except UnicodeDecodeError as error:
        line = path.read_bytes().count(b"\n", 0, error.start) + 1
        cause = f"{path} is not UTF-8 text (byte {error.start}, line {line}; Latin-1?)"
        raise UsageError(cause, f"save it as UTF-8: iconv -f LATIN1 -t UTF-8 {path}") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path} cannot be read: {reason}", "check the path and the file's permissions") from error


def import_location(path: Path) -> tuple[str, str]:
    """Returns the name under which to import the file, and the folder to add to sys.path; with these, relative imports
    work. Parent packages are folders with `__init__.py`.

    A file outside a package whose name is that of a standard library module, or `torch`, gets another module name,
    because it would replace that module for all other imports.
    """
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier() and folder != folder.parent:
        parts.insert(0, folder.name)
        folder = folder.parent
    if path.name == "__init__.py" and len(parts) > 1:
        parts.pop()
    if len(parts) == 1 and (parts[0] in sys.stdlib_module_names or parts[0] == "torch"):
        parts[0] = f"{parts[0]}_module"
    return ".".join(parts), str(folder)


def _absolute(file: str) -> Path:
    return Path(file).expanduser().absolute()


def _choose(text: str, path: Path, class_name: str, modules: tuple[ModuleClass, ...]) -> tuple[ModuleClass, Declared]:
    if not modules:
        raise UsageError(f"{path} holds no torch.nn.Module class", "name a file that defines one")
    if class_name:
        return _with_inputs(text, path, _named(path, class_name, modules), modules)
    usable = [module for module in modules if module.addressable and module.has_forward]
    if not usable:
        reason = "with a forward method" if any(module.addressable for module in modules) else "at the top level"
        raise UsageError(f"{path} holds no torch.nn.Module class {reason}", "define forward, at the file's top level")
    model = [module for module in usable if module.name == "Model"]
    if len(usable) == 1 or model:
        return _with_inputs(text, path, (model or usable)[0], modules)
    return _only_one_with_inputs(text, path, usable, modules)


class SeveralClassesError(UsageError):
    """Raised if several classes of a file have inputs and the user has named no class. `names` are these classes."""

    def __init__(self, path: Path, names: tuple[str, ...]) -> None:
        super().__init__(f"{path} holds several modules: {', '.join(names)}", f"name one, e.g. {path.name}:{names[0]}")
        self.names = names


def _only_one_with_inputs(
    text: str, path: Path, usable: list[ModuleClass], modules: tuple[ModuleClass, ...]
) -> tuple[ModuleClass, Declared]:
    matches = [module for module in usable if _declares(text, path, module, modules)]
    if len(matches) == 1:
        return _with_inputs(text, path, matches[0], modules)
    if matches:
        raise SeveralClassesError(path, tuple(module.name for module in matches))
    names = ", ".join(module.name for module in usable)
    raise NoInputsError(
        f"{path} holds several modules and none has inputs: {names}",
        f"name one, e.g. {path.name}:{usable[-1].name}, and {no_inputs(path, usable[-1]).next_step}",
        path=path,
        class_name=usable[-1].name,
        others=tuple(module.name for module in usable[:-1]),
    )


def _declares(text: str, path: Path, module: ModuleClass, modules: tuple[ModuleClass, ...]) -> bool:
    """Whether inputs are declared for the class. True also if the declaration has an error."""
    try:
        return find_declared(text, path, module, modules) is not None
    except UsageError:
        return True


def _named(path: Path, class_name: str, modules: tuple[ModuleClass, ...]) -> ModuleClass:
    same = [module for module in modules if module.name == class_name]
    names = ", ".join(dict.fromkeys(module.name for module in modules if module.addressable)) or "none"
    if not same:
        raise UsageError(f"{path} has no torch.nn.Module class {class_name}", f"classes there: {names}")
    usable = [module for module in same if module.addressable]
    if not usable:
        raise UsageError(
            f"{path}:{same[0].line}: {class_name} is nested in a function or a class",
            f"move it to the file's top level, or name one of: {names}",
        )
    if not usable[0].has_forward:
        raise UsageError(f"{path}:{usable[0].line}: {class_name} has no forward method", f"classes there: {names}")
    return usable[0]


def _with_inputs(
    text: str, path: Path, module: ModuleClass, modules: tuple[ModuleClass, ...]
) -> tuple[ModuleClass, Declared]:
    declared = find_declared(text, path, module, modules)
    if declared is None:
        raise no_inputs(path, module)
    return module, declared
