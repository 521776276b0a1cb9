"""Model cards: a TOML file beside a GGUF file, with the same name. The shipped model has one."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import Record


class ModelCard(Record, frozen=True, kw_only=True):
    """The card of a model. `sha256` is the hash of the GGUF file in hexadecimal; `commit` is the version of the sources
    and data with which the model was trained. `figures` are measured values by name.

    `turns`: the number of replies in one conversation for which the model was trained, 0 for any number.
    """

    sha256: str
    made_for: str
    data: str
    recipe: str
    commit: str
    cannot: str
    figures: dict[str, str]
    turns: int = 0

    def lines(self) -> list[str]:
        """Returns the card as lines of text."""
        about = ("made_for", "cannot", "data", "recipe", "commit", "sha256")
        texts = [f"{name.replace('_', ' ')}: {getattr(self, name)}" for name in about]
        return [*texts, "figures:", *(f"  {name}: {text}" for name, text in self.figures.items())]


def card_of(file: Path) -> ModelCard | None:
    """Returns the card of a GGUF file; None if it has none. Raises UsageError for an invalid card."""
    path = file.with_suffix(".toml")
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), type=ModelCard)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}", "mend or remove that file") from error
