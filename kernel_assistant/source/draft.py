"""A draft of `get_inputs` and `get_init_inputs` for a class that declares none: text for a person to mend, never run.

From the signatures of `__init__` and `forward`, their defaults and annotations, and from a literal call of the class
somewhere in the project. Sizes that nothing tells are guesses, and the draft says so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_assistant.errors import UsageError
from kernel_assistant.source.build import read_text, split_spec
from kernel_assistant.source.find import ModuleClass, find_modules, parse

_MOST_FILES = 400
_MOST_BYTES = 1 << 20
_SKIPPED = {"site-packages", "dist-packages", "node_modules", "__pycache__", "venv", "build", "dist"}
#: Names of constructor arguments that usually are the size of the last dimension of what forward takes.
_WIDTHS = (
    *("in_features", "dim", "d_model", "hidden_size", "hidden_dim", "embed_dim", "n_embd", "normalized_shape"),
    *("features", "num_features", "channels", "in_channels", "input_size", "input_dim", "size", "width"),
)
_INDICES = ("ids", "idx", "indices", "index", "tokens", "labels", "targets", "positions")
_MASKS = ("mask", "padding_mask", "attention_mask", "attn_mask")
_GUESSED_WIDTH = 256


@dataclass(frozen=True)
class Draft:
    """`text` is Python to paste below the class; `origin` says where its constructor arguments come from."""

    class_name: str
    text: str
    origin: str


def draft(spec: str, text: str | None = None) -> Draft:
    """The draft for `FILE[:CLASS]` (without a class the last one); `text` is an unsaved editor buffer.

    Raises UsageError where there is no such class.
    """
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
    lines = ["import torch", "", "", *_init_lines(arguments), *_input_lines(forward, _width(arguments))]
    return Draft(chosen.name, "\n".join(lines) + "\n", origin)


def with_draft(text: str, drafted: str) -> str:
    """A file's text with a draft at its end; without the draft's import where the file has it."""
    lines = drafted.splitlines()
    if any(line.strip() == "import torch" for line in text.splitlines()):
        lines = lines[next((place for place, line in enumerate(lines) if line.startswith("def ")), 0) :]
    end = "\r\n" if "\r\n" in text else "\n"
    return f"{text.rstrip()}{end}{end}{end}{end.join(lines)}{end}"


def _choose(path: Path, class_name: str, modules: list[ModuleClass]) -> ModuleClass:
    found = [module for module in modules if class_name in ("", module.name)]
    if not found:
        names = ", ".join(module.name for module in modules) or "none"
        raise UsageError(f"{path} has no torch.nn.Module class {class_name}".rstrip(), f"classes there: {names}")
    return found[-1]


def _inner(tree: ast.Module) -> list[ast.stmt]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def _is_class(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == name


def _method(tree: ast.Module, node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """The class's own method, or that of a base in the same file."""
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
    """One constructor argument as source text. `guessed` where nothing told its value."""

    name: str
    text: str
    keyword: bool
    guessed: bool


def _init_arguments(init: ast.FunctionDef | None, call: ast.Call | None) -> list[_Argument]:
    """Arguments in order: those of the literal call, then required ones that it does not give."""
    if init is None:
        return []
    names = [argument.arg for argument in (*init.args.posonlyargs, *init.args.args)][1:]
    given: dict[str, str] = {}
    if call is not None:
        given = dict(zip(names, map(ast.unparse, call.args), strict=False))
        given |= {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg}
    required = len(names) - len(init.args.defaults)
    found: list[_Argument] = []
    for place, argument in enumerate((*init.args.posonlyargs, *init.args.args)[1:]):
        if argument.arg in given or place < required:
            told = given.get(argument.arg)
            skipped = len(found) < place
            found.append(_Argument(argument.arg, told or _guess(argument), skipped, told is None))
    for argument, default in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True):
        if argument.arg in given or default is None:
            told = given.get(argument.arg)
            found.append(_Argument(argument.arg, told or _guess(argument), True, told is None))
    return found


def _guess(argument: ast.arg) -> str:
    annotation = "" if argument.annotation is None else ast.unparse(argument.annotation).strip("'\"")
    plain = annotation.partition("|")[0].strip().removeprefix("Optional[").rstrip("]")
    if plain in ("bool", "float", "str"):
        return {"bool": "False", "float": "0.5", "str": "''"}[plain]
    if plain == "int" or argument.arg in _WIDTHS or not plain:
        return str(_GUESSED_WIDTH if argument.arg in _WIDTHS else 8)
    return f"{plain}()" if plain.replace(".", "").isidentifier() else "..."


def _width(arguments: list[_Argument]) -> int:
    """The last dimension of the inputs as the constructor's arguments tell it."""
    for name in _WIDTHS:
        for argument in arguments:
            if argument.name == name and argument.text.isdigit():
                return int(argument.text)
    return next((int(argument.text) for argument in arguments if argument.text.isdigit()), _GUESSED_WIDTH)


def _init_lines(arguments: list[_Argument]) -> list[str]:
    if not arguments:
        return []
    unsure = [argument.name for argument in arguments if argument.guessed]
    comment = f"  # guessed: {', '.join(unsure)}" if unsure else ""
    if any(argument.keyword for argument in arguments):
        body = ", ".join(f"{argument.name!r}: {argument.text}".replace("'", '"', 2) for argument in arguments)
        return ["def get_init_inputs():", f"    return {{{body}}}{comment}", "", ""]
    return [
        "def get_init_inputs():",
        f"    return [{', '.join(argument.text for argument in arguments)}]{comment}",
        "",
        "",
    ]


def _input_lines(forward: ast.FunctionDef | None, width: int) -> list[str]:
    """`get_inputs` with what `forward` requires; as a dict where a required argument is keyword-only."""
    if forward is None:
        return ["def get_inputs():", f"    return [torch.randn(8, 128, {width})]  # guessed: number and shapes"]
    positional = [*forward.args.posonlyargs, *forward.args.args][1:]
    required = positional[: len(positional) - len(forward.args.defaults)]
    keyword = [
        argument
        for argument, default in zip(forward.args.kwonlyargs, forward.args.kw_defaults, strict=True)
        if default is None
    ]
    if not required and not keyword and forward.args.vararg is not None:
        required = [ast.arg(forward.args.vararg.arg)]
    if keyword:
        body = ", ".join(f'"{argument.arg}": {_value(argument, width)}' for argument in (*required, *keyword))
        return ["def get_inputs():", f"    return {{{body}}}  # guessed: shapes and dtypes"]
    values = ", ".join(_value(argument, width) for argument in required)
    return ["def get_inputs():", f"    return [{values}]  # guessed: shapes and dtypes"]


def _value(argument: ast.arg, width: int) -> str:
    name = argument.arg.lower()
    annotation = "" if argument.annotation is None else ast.unparse(argument.annotation).strip("'\"")
    if annotation in ("int", "float", "bool"):
        return {"int": "1", "float": "1.0", "bool": "False"}[annotation]
    if name.endswith(_MASKS):
        return "torch.ones(8, 128, dtype=torch.bool)"
    if name.endswith(_INDICES):
        return "torch.randint(0, 100, (8, 128))"
    return f"torch.randn(8, 128, {width})"


def _literal_call(path: Path, class_name: str) -> tuple[ast.Call | None, str]:
    """A call of the class with literal arguments only, in its own file first, then in the project; and where it is."""
    for file in _project_files(path):
        try:
            if file.stat().st_size > _MOST_BYTES:
                continue
            text = file.read_text(encoding="utf-8-sig")
            calls = _calls(ast.parse(text), class_name) if class_name in text else iter(())
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue  # a file that cannot be read tells nothing; others may
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
    """The file itself, then others below the project's folder (that of pyproject.toml or .git, else the file's own)."""
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
