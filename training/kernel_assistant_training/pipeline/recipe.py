"""Recipes of training runs: which stages, in which order, with which options and time limits."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from kernel_assistant.config import did_you_mean
from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import Record
from kernel_assistant_training.pipeline.kinds import KINDS

#: The folder of the recipes in this package.
RECIPES = Path(__file__).parent.parent / "recipes"
START = "start"


class RecipeStage(Record, frozen=True, kw_only=True):
    """One stage of a recipe. `limit` is in seconds, over all starts. `kind` is equal to `name` by default. `of` is the
    name of an earlier stage, whose model this stage starts from, or `start` for the recipe's base; "" means the model
    of the nearest earlier stage that has one. `models` names, in the same way, the models that an `eval` stage
    evaluates. `choose` is a metric of earlier `eval` stages: this stage starts from the model for which the metric is
    highest. An `optional` stage is skipped if it reaches its limit without a model. `options` are the options of the
    stage's command, with `_` for `-`."""

    name: str
    limit: Annotated[float, msgspec.Meta(gt=0)]
    kind: str = ""
    of: str = ""
    choose: str = ""
    models: tuple[str, ...] = ()
    optional: bool = False
    options: dict[str, bool | int | float | str | list[str]] = {}

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", self.name) or self.name == START:
            raise ValueError(f"{self.name!r} is no name of a stage: small letters, digits and hyphens, not `{START}`")
        msgspec.structs.force_setattr(self, "kind", self.kind or self.name)
        seconds = self.options.get("seconds", 0)
        if self.kind not in KINDS:
            problem = f"no kind {self.kind!r}{did_you_mean(self.kind, KINDS)}"
        elif self.models and self.kind != "eval":
            problem = f"`models` are for eval stages; this is {self.kind}"
        elif KINDS[self.kind].timed and "steps" not in self.options and float(seconds) >= self.limit:  # type: ignore[arg-type]
            problem = f"its clock of {seconds:g} s does not end before its limit of {self.limit:g} s"
        else:
            return
        raise ValueError(f"stage {self.name}: {problem}")


class Recipe(Record, frozen=True, kw_only=True):
    """The stages of a run and their common settings. `base` is `scratch`, `shipped`, a folder, a GGUF file or
    OWNER/NAME. `gpus` is the number of GPUs that PPO trains on, `threads` the number of threads of each process of a
    stage (0: the libraries' default)."""

    target: Literal["cpu", "cuda"]
    stage: tuple[RecipeStage, ...]
    about: str = ""
    base: str = "scratch"
    seed: int = 0
    gpus: int = 1
    threads: int = 0

    def __post_init__(self) -> None:
        names = [one.name for one in self.stage]
        if not names or len(set(names)) < len(names):
            raise ValueError("a recipe has one or more [[stage]] tables, each of another name")
        for number, one in enumerate(self.stage):
            for name in (one.of, *one.models):
                if name not in ("", START, *names[:number]):
                    raise ValueError(f"stage {one.name}: {name!r} is no stage before it, and not `{START}`")

    def index(self, name: str) -> int:
        """Returns the index of a stage, from 0. Raises UsageError if the recipe has no such stage."""
        names = [one.name for one in self.stage]
        if name not in names:
            raise UsageError(
                f"the recipe has no stage {name!r}{did_you_mean(name, names)}", f"it has {', '.join(names)}"
            )
        return names.index(name)

    @property
    def limit(self) -> float:
        """The sum of the time limits of all stages, in seconds."""
        return sum(one.limit for one in self.stage)

    def settings(self) -> dict[str, str]:
        """Returns the settings that must be the same when a run is started again: all settings but limits and `about`,
        as text, without empty values."""
        settings: dict[str, Any] = {name: getattr(self, name) for name in ("target", "base", "seed", "gpus", "threads")}
        settings["stages"] = ", ".join(one.name for one in self.stage)
        for one in self.stage:
            own = {name: getattr(one, name) for name in ("kind", "of", "choose")} | {"models": ", ".join(one.models)}
            settings |= {f"{one.name}.{name}": value for name, value in {**own, **one.options}.items()}
        return {name: repr(value) for name, value in settings.items() if value != ""}


def load(word: str) -> Recipe:
    """Loads a recipe: a recipe of this package if `word` is its name, else the TOML file `word`. Raises UsageError if
    there is no such file or it is invalid."""
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
