"""One resolved, frozen `Settings` from five layers.

defaults < `[tool.kernel-assistant]` of the nearest pyproject.toml < user file < `KERNEL_ASSISTANT_*` < flags.

A repository may say what it wants measured, never where our files lie or what is started: opening somebody else's
checkout must not choose an interpreter, weaken the sandbox or send anything anywhere.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kernel_assistant.errors import UsageError

APP = "kernel-assistant"
PREFIX = "KERNEL_ASSISTANT_"


def parse_seconds(value: object) -> float:
    """Seconds from a number or `90`, `120s`, `2m`, `1h`. Raises ValueError unless positive and finite."""
    text = str(value).strip().lower()
    scale = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:], 0.0)
    seconds = float(text[:-1]) * scale if scale else float(text)
    if not 0.0 < seconds < float("inf"):
        raise ValueError("want a positive duration such as 120s or 2m")
    return seconds


def _one_of(*names: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in names:
            raise ValueError("want one of " + ", ".join(names))
        return str(value)

    return parse


def _folder(value: object) -> Path:
    return Path(str(value)).expanduser().absolute()


def _machine(value: object) -> str:
    """As the last argument of ssh: nothing that it would take for an option or for two."""
    name = str(value).strip()
    if name.startswith("-") or any(character.isspace() or not character.isprintable() for character in name):
        raise ValueError("want user@machine, or a name of ssh's configuration")
    return "" if name == "none" else name


def _names(value: object) -> tuple[str, ...]:
    """A list, or a string with commas (from the environment)."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ValueError("want a list of patterns")
    return tuple(name.strip() for name in names if name.strip())


def _setting(default: Any, doc: str, parse: Callable[[object], Any], *, project: bool = False) -> Any:
    return field(default=default, metadata={"doc": doc, "parse": parse, "project": project})


TARGETS = ("auto", "cuda", "cpu")
POLICIES = ("auto", "model", "generator")
NUMERICS = ("kernelbench", "strict", "paper")
SANDBOXES = ("auto", "bubblewrap", "landlock", "none")


@dataclass(frozen=True)
class Settings:
    """Everything that can be set. `documentation()` lists the line of each field."""

    state_dir: Path = _setting(Path(), "folder of jobs, store and host log", _folder)
    cache_dir: Path = _setting(Path(), "folder of built kernels and device ceilings; may be deleted", _folder)
    runtime_dir: Path = _setting(Path(), "folder of the host's socket", _folder)
    python: str = _setting("", "interpreter with torch; empty: found from the project", str)
    sandbox: str = _setting("auto", "where generated code runs: " + "|".join(SANDBOXES), _one_of(*SANDBOXES))
    target: str = _setting("auto", "device kind: " + "|".join(TARGETS), _one_of(*TARGETS), project=True)
    policy: str = _setting("auto", "who writes kernels: " + "|".join(POLICIES), _one_of(*POLICIES), project=True)
    budget: float = _setting(120.0, "wall time of a job, in seconds or as 2m", parse_seconds, project=True)
    numerics: str = _setting("kernelbench", "error policy: " + "|".join(NUMERICS), _one_of(*NUMERICS), project=True)
    host: str = _setting("", "machine to work on, as ssh names it; none: this one", _machine)
    remote_python: str = _setting("", "interpreter with torch on that machine", str)
    remote_dir: str = _setting("", "folder of everything of ours on that machine", str)
    ship: tuple[str, ...] = _setting((), "files needed there besides what the module imports", _names, project=True)
    host_idle_seconds: float = _setting(600.0, "the session host ends after so long without work", parse_seconds)
    worker_idle_seconds: float = _setting(300.0, "a worker is kept warm for so long after a job", parse_seconds)

    @property
    def jobs_dir(self) -> Path:
        return self.state_dir / "jobs"


#: Names a repository is told about when it tries; those of later features are refused from the start.
_NEVER_FROM_PROJECT = {"endpoint", "host"} | {f.name for f in fields(Settings) if not f.metadata["project"]}


def documentation() -> dict[str, str]:
    """Field name → its one line."""
    return {item.name: item.metadata["doc"] for item in fields(Settings)}


def resolve(
    start: Path | None = None,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Settings, list[str]]:
    """The settings for a file or folder `start`, and one-line warnings about what was ignored.

    `flags` holds field names; None values mean "not given". Raises UsageError for a value that does not fit.
    """
    environ = os.environ if environ is None else environ
    warnings: list[str] = []
    folders = _default_folders(environ)
    values: dict[str, Any] = {key: folders[key] for key in ("state_dir", "cache_dir", "runtime_dir")}
    values |= _from_project(start, warnings)
    values |= _from_user_file(folders["config_file"], warnings)
    values |= _from_environment(environ)
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    values |= {key: _parse(key, value, "") for key, value in given.items()}
    return Settings(**values), warnings


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


def _from_project(start: Path | None, warnings: list[str]) -> dict[str, Any]:
    path = _nearest_pyproject(start)
    if path is None:
        return {}
    table = _read_toml(path).get("tool", {}).get(APP, {})
    found: dict[str, Any] = {}
    for key, value in table.items() if isinstance(table, dict) else ():
        name = key.replace("-", "_")
        if name in _NEVER_FROM_PROJECT:
            warnings.append(f"{path}: a project cannot set {key!r}; ignored (use the user file, environment or a flag)")
        elif name in documentation():
            found[name] = _parse(name, value, f"{path} [tool.{APP}]")
    return found


def _from_user_file(path: Path, warnings: list[str]) -> dict[str, Any]:
    if not path.is_file():
        return {}
    found: dict[str, Any] = {}
    for key, value in _read_toml(path).items():
        name = key.replace("-", "_")
        if name in documentation():
            found[name] = _parse(name, value, str(path))
        else:
            warnings.append(f"{path}: unknown setting {key!r}; ignored")
    return found


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    given = {name: environ.get(PREFIX + name.upper(), "") for name in documentation()}
    return {name: _parse(name, value, PREFIX + name.upper()) for name, value in given.items() if value}


def _nearest_pyproject(start: Path | None) -> Path | None:
    if start is None:
        return None
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file():
            return folder / "pyproject.toml"
    return None


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
        place = f"{where}: " if where else ""
        raise UsageError(f"{place}{name} = {value!r} does not fit: {error}", documentation()[name]) from error
