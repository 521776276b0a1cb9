"""Recipes: which stages, in which order, with which options and limits."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from kernel_assistant.config import did_you_mean
from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import Record
from kernel_assistant_training.pipeline.kinds import KINDS, TIMED

#: Those that come with the package.
RECIPES = Path(__file__).parent.parent / "recipes"
START = "start"
Value = bool | int | float | str | list[str]


class Stage(Record, frozen=True, kw_only=True):
    """`limit` in seconds, its starts included. `of` names the stage whose model it starts from, or `start`; "" the
    nearest before it. `models` are those that an `eval` stage evaluates instead of that one, named in the same way.
    `choose` is a figure of `eval` stages: it starts from the model that this is best for. One that is `optional` is
    passed over where it comes to its limit without a model. `options` are the stage's own, with `_` for `-`."""

    name: str
    limit: float
    kind: str = ""
    of: str = ""
    choose: str = ""
    models: tuple[str, ...] = ()
    optional: bool = False
    options: dict[str, Value] = {}

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", self.name) or self.name == START:
            raise ValueError(f"{self.name!r} is no name of a stage: small letters, digits and hyphens, not `{START}`")
        kind = self.kind or self.name
        if kind not in KINDS:
            raise ValueError(f"stage {self.name}: no kind {kind!r}{did_you_mean(kind, KINDS)}")
        if self.limit <= 0:
            raise ValueError(f"stage {self.name}: limit is {self.limit:g}, not above 0")
        if self.models and kind != "eval":
            raise ValueError(f"stage {self.name}: `models` are for eval stages; this is {kind}")
        seconds = self.options.get("seconds", 0)
        bounded = "steps" in self.options
        if kind in TIMED and not bounded and isinstance(seconds, (int, float)) and seconds >= self.limit:
            raise ValueError(
                f"stage {self.name}: its clock of {seconds:g} s does not end before its limit of {self.limit:g} s"
            )

    @property
    def of_kind(self) -> str:
        return self.kind or self.name


class Recipe(Record, frozen=True, kw_only=True):
    """`base` is `scratch`, `shipped`, a folder, a GGUF file or OWNER/NAME; `gpus` are those that PPO updates on,
    `threads` those of each process of a stage, 0 for as many as libraries take."""

    target: str
    stage: tuple[Stage, ...]
    about: str = ""
    base: str = "scratch"
    seed: int = 0
    gpus: int = 1
    threads: int = 0

    def __post_init__(self) -> None:
        if self.target not in ("cpu", "cuda"):
            raise ValueError(f"target is {self.target!r}, not cpu or cuda")
        names = [one.name for one in self.stage]
        if not names or len(set(names)) < len(names):
            raise ValueError("a recipe has one or more [[stage]] tables, each of another name")
        for number, one in enumerate(self.stage):
            for name in (*([one.of] if one.of else []), *one.models):
                if name not in (START, *names[:number]):
                    raise ValueError(f"stage {one.name}: {name!r} is no stage before it, and not `{START}`")

    def place(self, name: str) -> int:
        """Of a stage, from 0. Raises UsageError."""
        names = [one.name for one in self.stage]
        if name not in names:
            raise UsageError(
                f"the recipe has no stage {name!r}{did_you_mean(name, names)}", f"it has {', '.join(names)}"
            )
        return names.index(name)

    @property
    def limit(self) -> float:
        """Seconds of all stages together."""
        return sum(one.limit for one in self.stage)


def load(word: str) -> Recipe:
    """By the name of one that comes with the package, or a TOML file. Raises UsageError."""
    known = sorted(path.stem for path in RECIPES.glob("*.toml"))
    path = RECIPES / f"{word}.toml" if word in known else Path(word)
    if not path.is_file():
        raise UsageError(
            f"no recipe {word!r}{did_you_mean(word, known)}", f"name a TOML file, or one of {', '.join(known)}"
        )
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), type=Recipe)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}", "docs/training_recipes.md says what a recipe has") from error


def held(recipe: Recipe) -> dict[str, Any]:
    """What a second start is held to, one level deep: limits and `about` are free."""
    found: dict[str, Any] = {"target": recipe.target, "base": recipe.base, "seed": recipe.seed, "gpus": recipe.gpus}
    found["threads"] = recipe.threads
    found["stages"] = ", ".join(one.name for one in recipe.stage)
    for one in recipe.stage:
        found |= {f"{one.name}.kind": one.of_kind, f"{one.name}.of": one.of, f"{one.name}.choose": one.choose}
        found[f"{one.name}.models"] = ", ".join(one.models)
        found |= {f"{one.name}.{name}": value for name, value in one.options.items()}
    return found
