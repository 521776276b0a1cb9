"""Resolves the settings, as a frozen `Settings` object, from five layers; a later layer overrides the earlier ones.

defaults < user file < `[tool.kernel-assistant]` of the nearest pyproject.toml < `KERNEL_ASSISTANT_*` < options.

A repository may say how its modules are optimized, but not where this tool stores its files or which programs it
starts: opening somebody else's checkout must not choose an interpreter, weaken the sandbox or send anything anywhere.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kernel_assistant.errors import UsageError

APP = "kernel-assistant"
PREFIX = "KERNEL_ASSISTANT_"


def parse_seconds(value: object) -> float:
    """Returns seconds from a number, or from a text such as `90`, `120s`, `2m` or `1h`. Raises ValueError unless the
    result is positive and finite."""
    text = str(value).strip().lower()
    scale = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:], 0.0)
    seconds = float(text[:-1]) * scale if scale else float(text)
    if not 0.0 < seconds < float("inf"):
        raise ValueError("want a positive duration such as 120s or 2m")
    return seconds


def _one_of(*names: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in names:
            raise ValueError("want one of " + ", ".join(names) + did_you_mean(str(value), names))
        return str(value)

    return parse


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns the text " (did you mean WORD?)" if a known word is close to `word`, else ""."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _switch(value: object) -> bool:
    word = str(value).strip().lower()
    if word not in ("true", "false", "yes", "no", "on", "off", "1", "0"):
        raise ValueError("want true or false")
    return word in ("true", "yes", "on", "1")


def _positive(value: object) -> float:
    """Returns the number in a setting, such as a speed-up or an amount of money. Raises ValueError unless it is
    positive and finite."""
    number = float(str(value))
    if not 0.0 < number < float("inf"):
        raise ValueError("want a positive number such as 1.05")
    return number


def _price(value: object) -> float:
    """Returns the price in a setting. Raises ValueError unless it is finite and not negative."""
    price = float(str(value))
    if not 0.0 <= price < float("inf"):
        raise ValueError("want a number such as 0.25")
    return price


def _count(most: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        number = int(str(value))
        if not 1 <= number <= most:
            raise ValueError(f"want a number from 1 to {most}")
        return number

    return parse


def _folder(value: object) -> Path:
    return Path(str(value)).expanduser().absolute()


def _machine(value: object) -> str:
    """Returns the name of a machine as ssh takes it; "" for `none`. Raises ValueError for a text that ssh would take
    for an option or for two words."""
    name = str(value).strip()
    if name.startswith("-") or any(character.isspace() or not character.isprintable() for character in name):
        raise ValueError("want user@machine, or a name of ssh's configuration")
    return "" if name == "none" else name


def _names(value: object) -> tuple[str, ...]:
    """Returns the names in a list, or in a string that separates them by commas (from the environment). Raises
    ValueError for anything else."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ValueError("want a list of patterns")
    return tuple(name.strip() for name in names if name.strip())


def _codes(value: object) -> tuple[str, ...]:
    return tuple(name.upper() for name in _names(value))


def _setting(default: Any, doc: str, parse: Callable[[object], Any], *, project: bool = False) -> Any:
    return field(default=default, metadata={"doc": doc, "parse": parse, "project": project})


TARGETS = ("auto", "cuda", "cpu")
POLICIES = ("auto", "model", "generator")
NUMERICS = ("kernelbench", "strict", "paper")
SOURCES = ("auto", "declared", "recorded")
SANDBOXES = ("auto", "bubblewrap", "landlock", "none")


@dataclass(frozen=True)
class Settings:
    """All settings. `documentation()` describes each field in one line."""

    state_dir: Path = _setting(Path(), "folder of jobs, store and host log", _folder)
    cache_dir: Path = _setting(Path(), "folder of built kernels and device ceilings; may be deleted", _folder)
    runtime_dir: Path = _setting(Path(), "folder of the host's socket", _folder)
    python: str = _setting("", "interpreter with torch; empty: found from the project", str)
    sandbox: str = _setting("auto", "where generated code runs: " + "|".join(SANDBOXES), _one_of(*SANDBOXES))
    target: str = _setting("auto", "device kind: " + "|".join(TARGETS), _one_of(*TARGETS), project=True)
    policy: str = _setting("auto", "who writes kernels: " + "|".join(POLICIES), _one_of(*POLICIES), project=True)
    budget: float = _setting(120.0, "wall time of a job, in seconds or as 2m", parse_seconds, project=True)
    numerics: str = _setting("kernelbench", "error policy: " + "|".join(NUMERICS), _one_of(*NUMERICS), project=True)
    inputs: str = _setting("auto", "inputs of a module: " + "|".join(SOURCES), _one_of(*SOURCES), project=True)
    fail_under: float | None = _setting(None, "optimize ends with 1 below this speed-up", _positive, project=True)
    free_wins: bool = _setting(True, "measure what gains without a kernel", _switch, project=True)
    model: str = _setting("", "model in use: a name of `models list`, a file, a folder, OWNER/NAME or a URL", str)
    endpoint: str = _setting("", "OpenAI-compatible URL, or a registered one's name; goes before `model`", str)
    api_key_env: str = _setting("KERNEL_ASSISTANT_API_KEY", "variable that holds the key for a URL", str)
    episodes: int = _setting(1, "conversations with a model at once, best of all counts: 1 to 16", _count(16))
    turns: int = _setting(200, "replies of a model in one conversation, turns of the generator: 1 to 200", _count(200))
    tokens: int = _setting(1_000_000, "tokens that a model may write in one conversation", _count(1_000_000_000))
    money: float | None = _setting(None, "money for the requests of a job, in the currency of the price", _positive)
    price_in: float | None = _setting(None, "price of a million tokens in, of a model without its own", _price)
    price_out: float | None = _setting(None, "price of a million tokens out, of a model without its own", _price)
    device_time: float | None = _setting(None, "time on the device for a model's tries, such as 60s", parse_seconds)
    vllm_python: str = _setting("", "interpreter with vllm; empty: that of serve --install", str)
    detach: bool = _setting(False, "leave a job to the session host at once", _switch)
    host: str = _setting("", "machine to work on, as ssh names it; none: this one", _machine)
    remote_python: str = _setting("", "interpreter with torch on that machine", str)
    remote_dir: str = _setting("", "folder of everything of ours on that machine", str)
    ship: tuple[str, ...] = _setting((), "files needed there besides what the module imports", _names, project=True)
    ignore_hints: tuple[str, ...] = _setting((), "hints that are not shown, such as KA002", _codes, project=True)
    host_idle_seconds: float = _setting(600.0, "the session host ends after so long without work", parse_seconds)
    worker_idle_seconds: float = _setting(300.0, "a worker is kept warm for so long after a job", parse_seconds)

    @property
    def jobs_dir(self) -> Path:
        return self.state_dir / "jobs"

    @property
    def counters_dir(self) -> Path:
        """The folder in which programs with applied kernels store how often the kernels and the original ran."""
        return self.state_dir / "counters"


#: Other tables of `[tool.kernel-assistant]`.
_PROJECT_TABLES = ("modules",)
#: Tables of the user file that a front end reads itself.
_USER_TABLES = ("tui",)
#: Settings that a repository cannot make; each attempt gives a warning.
_NEVER_FROM_PROJECT = {"endpoint", "host"} | {f.name for f in fields(Settings) if not f.metadata["project"]}


def documentation() -> dict[str, str]:
    """Maps each field's name to its description in one line."""
    return {item.name: item.metadata["doc"] for item in fields(Settings)}


@dataclass(frozen=True)
class Origin:
    """The origin of a setting's value: `layer` is default, user file, project, environment or option; `where` names the
    file and line, or the variable ("" for a default)."""

    layer: str
    where: str = ""


def resolve(
    start: Path | None = None,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Settings, list[str]]:
    """Returns the settings for a file or folder `start`, and a warning in one line for each setting that was ignored.

    `flags` maps names of settings to values from the command line; None means "not given". `environ` defaults to the
    process's environment. Raises UsageError for an invalid value and for an unknown name.
    """
    settings, _, warnings = trace(start, flags, environ)
    return settings, warnings


def trace(
    start: Path | None = None,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Settings, dict[str, Origin], list[str]]:
    """Returns (settings, origins, warnings): the same as `resolve`, and the origin of every value by the setting's
    name."""
    environ = os.environ if environ is None else environ
    warnings: list[str] = []
    folders = _default_folders(environ)
    values: dict[str, Any] = {key: folders[key] for key in ("state_dir", "cache_dir", "runtime_dir")}
    origins = {name: Origin("default") for name in documentation()}
    if environ.get(PREFIX + "HOME"):
        origins |= dict.fromkeys(values, Origin("environment", PREFIX + "HOME"))
    layers = (
        _from_user_file(folders["config_file"]),
        _from_project(nearest_pyproject(start), warnings),
        _from_environment(environ),
        {key: (_parse(key, value, ""), Origin("option")) for key, value in (flags or {}).items() if value is not None},
    )
    for layer in layers:
        values |= {name: value for name, (value, _) in layer.items()}
        origins |= {name: origin for name, (_, origin) in layer.items()}
    return Settings(**values), origins, warnings


def user_file(environ: Mapping[str, str] | None = None) -> Path:
    """Returns the path of the user's own settings file, whether it exists or not."""
    return _default_folders(os.environ if environ is None else environ)["config_file"]


def check_value(name: str, value: object, where: str = "") -> Any:
    """Converts a setting's value to the type that the field `name` of `Settings` has, and returns it. Raises
    UsageError, with `where` in its message, for an unknown name or an invalid value."""
    if name not in documentation():
        raise _unknown(name, where)
    return _parse(name, value, where)


def is_for_projects(name: str) -> bool:
    """Whether the pyproject.toml of a repository may set the setting `name`."""
    return name not in _NEVER_FROM_PROJECT


def _default_folders(environ: Mapping[str, str]) -> dict[str, Path]:
    home = environ.get(PREFIX + "HOME")
    if home:
        base = _folder(home)
        return {
            "state_dir": base / "state",
            "cache_dir": base / "cache",
            "runtime_dir": base / "run",
            "config_file": base / "config" / "config.toml",
        }
    import platformdirs

    state = Path(platformdirs.user_state_dir(APP))
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    return {
        "state_dir": state,
        "cache_dir": Path(platformdirs.user_cache_dir(APP)),
        "runtime_dir": Path(runtime) / APP if runtime and Path(runtime).is_dir() else state / "run",
        "config_file": Path(platformdirs.user_config_dir(APP)) / "config.toml",
    }


Layer = dict[str, tuple[Any, Origin]]


def _from_project(path: Path | None, warnings: list[str]) -> Layer:
    table = _read_toml(path).get("tool", {}).get(APP, {}) if path is not None else {}
    layer: Layer = {}
    for key, value in table.items() if isinstance(table, dict) else ():
        name, where = key.replace("-", "_"), _location(path, key, f"tool.{APP}")
        if name in _NEVER_FROM_PROJECT:
            warnings.append(
                f"{where}: a project cannot set {key!r}; ignored (use the user file, environment or a flag)"
            )
        elif name not in _PROJECT_TABLES:
            layer[name] = (check_value(name, value, where), Origin("project", where))
    return layer


def _from_user_file(path: Path) -> Layer:
    layer: Layer = {}
    for key, value in _read_toml(path).items() if path.is_file() else ():
        if key in _USER_TABLES:
            continue
        name, where = key.replace("-", "_"), _location(path, key)
        layer[name] = (check_value(name, value, where), Origin("user file", where))
    return layer


def _from_environment(environ: Mapping[str, str]) -> Layer:
    variables = {name: PREFIX + name.upper() for name in documentation()}
    return {
        name: (_parse(name, environ[variable], variable), Origin("environment", variable))
        for name, variable in variables.items()
        if environ.get(variable)
    }


def nearest_pyproject(start: Path | None) -> Path | None:
    """Returns the pyproject.toml that applies to a file or folder: the one in the nearest folder at or above it; None
    if there is none."""
    if start is None:
        return None
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file():
            return folder / "pyproject.toml"
    return None


def line_of(text: str, key: str, table: str = "") -> int:
    """Returns the line (from 1) on which `key` is set in a table of a TOML text; 0 if it is not found, for example in
    an inline table."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?$", line)
        if header:
            current = "".join(header[1].split()).replace('"', "")
        elif current == table and re.match(rf"""\s*["']?{re.escape(key)}["']?\s*=""", line):
            return number
    return 0


def _location(path: Path | None, key: str, table: str = "") -> str:
    """Returns the position of a setting as `file:line`, for messages; the file alone if the line is not found."""
    line = line_of(path.read_text(encoding="utf-8"), key, table) if path is not None else 0
    return f"{path}:{line}" if line else str(path)


def _unknown(name: str, where: str) -> UsageError:
    prefix = f"{where}: " if where else ""
    hint = did_you_mean(name, documentation())
    return UsageError(f"{prefix}unknown setting {name!r}{hint}", "kernel-assistant config list shows all of them")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}", "mend or remove that file") from error


def _parse(name: str, value: object, where: str) -> Any:
    parse = next(item.metadata["parse"] for item in fields(Settings) if item.name == name)
    try:
        return parse(value)
    except (TypeError, ValueError) as error:
        prefix = f"{where}: " if where else ""
        raise UsageError(f"{prefix}{name} = {value!r} does not fit: {error}", documentation()[name]) from error
