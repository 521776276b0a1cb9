"""Drafts the inputs of a class that declares none, as a comment for the user to correct and put above the class. Runs
nothing.

Uses the signatures of `__init__` and `forward`, their defaults and annotations, and a literal call of the class
somewhere in the project. Unknown sizes are guessed, and the draft says so. `drafts` returns several drafts, because
only a run shows whether a class takes rows, sequences or images (`session/drafting.py`).
"""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.errors import UsageError
from kernel_assistant.source.build import read_text, split_spec
from kernel_assistant.source.find import ModuleClass, find_modules, parse

_MOST_FILES = 400
_MOST_BYTES = 1 << 20
_SKIPPED = {"site-packages", "dist-packages", "node_modules", "__pycache__", "venv", "build", "dist"}
#: Names of constructor arguments of modules that take images.
_CHANNELS = ("in_channels", "channels", "num_channels", "num_features", "in_chans", "in_planes", "inplanes")
#: Names of constructor arguments that usually are the size of the last dimension of forward's inputs.
_WIDTHS = (
    *("in_features", "dim", "d_model", "hidden_size", "hidden_dim", "embed_dim", "n_embd", "normalized_shape"),
    *("features", "input_size", "input_dim", "size", "width"),
    *_CHANNELS,
)
_INDICES = ("ids", "idx", "indices", "index", "tokens", "labels", "targets", "positions")
_MASKS = ("mask", "padding_mask", "attention_mask", "attn_mask")
_GUESSED_WIDTH = 256
#: The approximate length of a comment line, in characters.
_LONGEST = 110


@dataclass(frozen=True)
class Draft:
    """A drafted declaration of inputs. `text` is the comment to insert directly above the class; `origin` says where
    the constructor arguments in it come from."""

    class_name: str
    text: str
    origin: str


def draft(spec: str) -> Draft:
    """Returns the likeliest draft of inputs for `FILE[:CLASS]`. Without a class, the last one of the file is taken.

    Raises UsageError if there is no such class.
    """
    return drafts(spec)[0]


def drafts(spec: str, text: str | None = None) -> tuple[Draft, ...]:
    """Returns drafts with inputs of different ranks, the likeliest first. `text` is an unsaved editor buffer; without
    it, the file is read. Raises UsageError if there is no such class."""
    path, class_name = split_spec(spec)
    text = read_text(path) if text is None else text
    modules = [module for module in find_modules(text, str(path)) if module.addressable and module.has_forward]
    chosen = _choose(path, class_name, modules)
    tree = parse(text, str(path))
    node = next(item for item in tree.body[::-1] + _inner(tree) if _is_class(item, chosen.name))
    assert isinstance(node, ast.ClassDef)
    init, forward = _method(tree, node, "__init__"), _method(tree, node, "forward")
    call, origin = _literal_call(path, chosen.name)
    arguments = _init_arguments(init, call)
    return tuple(
        Draft(chosen.name, _comment(forward, arguments, shape), origin) for shape in _shapes(forward, arguments)
    )


def with_draft(text: str, class_name: str, drafted: str) -> str:
    """Returns a file's text with a draft inserted directly above the class. Raises UsageError if there is no such
    class."""
    modules = [module for module in find_modules(text, "the file") if module.addressable]
    index = _choose(Path("the file"), class_name, modules).line - 1
    lines = io.StringIO(text, newline="").readlines()
    line = lines[index]
    indent, end = line[: len(line) - len(line.lstrip(" \t\f"))], line[len(line.rstrip("\r\n")) :] or "\n"
    comment = [f"{indent}{one}{end}" for one in drafted.splitlines()]
    return "".join([*lines[:index], *comment, *lines[index:]])


def _choose(path: Path, class_name: str, modules: list[ModuleClass]) -> ModuleClass:
    matches = [module for module in modules if class_name in ("", module.name)]
    if not matches:
        names = ", ".join(module.name for module in modules) or "none"
        raise UsageError(f"{path} has no torch.nn.Module class {class_name}".rstrip(), f"classes there: {names}")
    return matches[-1]


def _inner(tree: ast.Module) -> list[ast.stmt]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def _is_class(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == name


def _method(tree: ast.Module, node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """Returns the method `name` that the class `node` defines itself, else that of a base class in the same file; None
    if there is none."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return statement
    for base in node.bases:
        for other in _inner(tree):
            if isinstance(base, ast.Name) and _is_class(other, base.id) and other is not node:
                assert isinstance(other, ast.ClassDef)
                return _method(tree, other, name)
    return None


@dataclass(frozen=True)
class _Argument:
    """One constructor argument: its name, and its value as source text. `keyword` says that it is passed by name;
    `guessed` that its value is not known."""

    name: str
    text: str
    keyword: bool
    guessed: bool


def _init_arguments(init: ast.FunctionDef | None, call: ast.Call | None) -> list[_Argument]:
    """Returns the constructor's arguments in order: those with values from `call`, a call of the class with literals,
    and required ones that this call lacks, with guessed values."""
    if init is None:
        return []
    names = [argument.arg for argument in (*init.args.posonlyargs, *init.args.args)][1:]
    given: dict[str, str] = {}
    if call is not None:
        given = dict(zip(names, map(ast.unparse, call.args), strict=False))
        given |= {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg}
    required = len(names) - len(init.args.defaults)
    arguments: list[_Argument] = []
    for position, argument in enumerate((*init.args.posonlyargs, *init.args.args)[1:]):
        if argument.arg in given or position < required:
            value = given.get(argument.arg)
            skipped = len(arguments) < position
            arguments.append(_Argument(argument.arg, value or _guess(argument), skipped, value is None))
    for argument, default in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True):
        if argument.arg in given or default is None:
            value = given.get(argument.arg)
            arguments.append(_Argument(argument.arg, value or _guess(argument), True, value is None))
    return arguments


def _guess(argument: ast.arg) -> str:
    annotation = "" if argument.annotation is None else ast.unparse(argument.annotation).strip("'\"")
    plain = annotation.partition("|")[0].strip().removeprefix("Optional[").rstrip("]")
    if plain in ("bool", "float", "str"):
        return {"bool": "False", "float": "0.5", "str": "''"}[plain]
    if plain == "int" or argument.arg in _WIDTHS or not plain:
        return str(_GUESSED_WIDTH if argument.arg in _WIDTHS else 8)
    return f"{plain}()" if plain.replace(".", "").isidentifier() else "..."


def _width(arguments: list[_Argument]) -> int:
    """Returns the size of the inputs' last dimension, derived from the constructor's arguments."""
    for name in _WIDTHS:
        for argument in arguments:
            if argument.name == name and argument.text.isdigit():
                return int(argument.text)
    return next((int(argument.text) for argument in arguments if argument.text.isdigit()), _GUESSED_WIDTH)


def _shapes(forward: ast.FunctionDef | None, arguments: list[_Argument]) -> list[str]:
    """Returns possible shapes of an input tensor as text, such as "8, 128, 64", the likeliest first. Shapes that lead
    to the same draft are returned once."""
    width = _width(arguments)
    shapes = [f"8, 128, {width}", f"8, {width}", f"8, {width}, 32, 32", f"8, {width}, 128"]
    if any(argument.name in _CHANNELS for argument in arguments):
        shapes = [*shapes[2:], *shapes[:2]]
    return list({_comment(forward, arguments, shape): shape for shape in shapes}.values())


def _comment(forward: ast.FunctionDef | None, arguments: list[_Argument], shape: str) -> str:
    """Returns the text of the draft: a comment that lists the guesses, then the declaration."""
    inputs = [("inputs", f"(torch.randn({shape}),)")] if forward is None else _inputs(forward, shape)
    unsure = [argument.name for argument in arguments if argument.guessed]
    guessed = ", ".join(["shapes and dtypes", *unsure])
    fields = " ".join(f"{name}={value}" for name, value in [*inputs, *_init(arguments)])
    lines = [f"# guessed, mend what is wrong: {guessed}", *_wrapped(f"kernel-assistant: {fields}")]
    return "\n".join(lines) + "\n"


def _wrapped(declaration: str) -> list[str]:
    """Returns the declaration as comment lines; a long declaration is split at commas inside brackets."""
    lines, depth, start, last = [], 0, 0, 0
    for position, character in enumerate(declaration):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth:
            last = position + 1
        if position - start > _LONGEST and last > start:
            lines.append(declaration[start:last].strip())
            start = last
    return [f"# {line}" for line in [*lines, declaration[start:].strip()]]


def _init(arguments: list[_Argument]) -> list[tuple[str, str]]:
    """Returns the declaration's field for the constructor's arguments as (name, expression); [] if there are no
    arguments."""
    if any(argument.keyword for argument in arguments):
        body = ", ".join(f'"{argument.name}": {argument.text}' for argument in arguments)
        return [("init_kwargs", f"{{{body}}}")]
    return [("init", _tuple([argument.text for argument in arguments]))] if arguments else []


def _inputs(forward: ast.FunctionDef, shape: str) -> list[tuple[str, str]]:
    """Returns the declaration's fields for the required inputs of `forward` as (name, expression). Keyword-only
    inputs are in the field `kwargs`."""
    positional = [*forward.args.posonlyargs, *forward.args.args][1:]
    required = positional[: len(positional) - len(forward.args.defaults)]
    keyword = [
        argument
        for argument, default in zip(forward.args.kwonlyargs, forward.args.kw_defaults, strict=True)
        if default is None
    ]
    if not required and not keyword and forward.args.vararg is not None:
        required = [ast.arg(forward.args.vararg.arg)]
    values = [("inputs", _tuple([_value(argument, shape) for argument in required]))] if required or not keyword else []
    if keyword:
        body = ", ".join(f'"{argument.arg}": {_value(argument, shape)}' for argument in keyword)
        values.append(("kwargs", f"{{{body}}}"))
    return values


def _tuple(values: list[str]) -> str:
    return f"({', '.join(values)}{',' if len(values) == 1 else ''})"


def _value(argument: ast.arg, shape: str) -> str:
    name = argument.arg.lower()
    annotation = "" if argument.annotation is None else ast.unparse(argument.annotation).strip("'\"")
    if annotation in ("int", "float", "bool"):
        return {"int": "1", "float": "1.0", "bool": "False"}[annotation]
    if name.endswith(_MASKS):
        return "torch.ones(8, 128, dtype=torch.bool)"
    if name.endswith(_INDICES):
        return "torch.randint(0, 100, (8, 128))"
    return f"torch.randn({shape})"


def _literal_call(path: Path, class_name: str) -> tuple[ast.Call | None, str]:
    """Finds a call of the class with only literal arguments, first in the class's own file, then in the project.
    Returns the call (None if there is none) and a line that says where the arguments come from."""
    for file in _project_files(path):
        try:
            if file.stat().st_size > _MOST_BYTES:
                continue
            text = file.read_text(encoding="utf-8-sig")
            calls = _calls(ast.parse(text), class_name) if class_name in text else iter(())
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue  # skip a file that cannot be read
        for call in calls:
            if (call.args or call.keywords) and all(map(_is_literal, _values(call))):
                return call, f"constructor arguments as in {file}:{call.lineno}"
    return None, "constructor arguments from the signature alone"


def _calls(tree: ast.Module, class_name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name == class_name:
                yield node


def _values(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _project_files(path: Path) -> Iterator[Path]:
    """Yields the file itself, then other files of the project. The project's folder is the nearest one with
    pyproject.toml or .git, else the folder of the file."""
    yield path
    roots = [folder for folder in path.parents if (folder / "pyproject.toml").is_file() or (folder / ".git").exists()]
    count = 0
    for file in _python_files(roots[0] if roots else path.parent, 0):
        if file != path:
            count += 1
            if count > _MOST_FILES:
                return
            yield file


def _python_files(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.suffix == ".py" and entry.is_file():
            yield entry
        elif depth < 8 and _is_source_folder(entry):
            yield from _python_files(entry, depth + 1)


def _is_source_folder(entry: Path) -> bool:
    hidden = entry.name in _SKIPPED or entry.name.startswith(".")
    return not hidden and entry.is_dir() and not entry.is_symlink()
