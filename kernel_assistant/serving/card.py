"""What is said of a model: a card in TOML beside its GGUF file, of the same name. The one that ships has one."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from kernel_assistant.errors import UsageError
from kernel_assistant.records.codec import Record


class Card(Record, frozen=True, kw_only=True):
    """`sha256` of the file in hexadecimal; `commit` of data and program. `figures` are what was measured, by name.

    `turns`: replies of one conversation that the model has learned to give, 0 where it takes any number.
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
        """For people."""
        about = ("made_for", "cannot", "data", "recipe", "commit", "sha256")
        texts = [f"{name.replace('_', ' ')}: {getattr(self, name)}" for name in about]
        return [*texts, "figures:", *(f"  {name}: {text}" for name, text in self.figures.items())]


def card_of(file: Path) -> Card | None:
    """The card of a GGUF file, None where it has none. Raises UsageError for one that does not fit."""
    path = file.with_suffix(".toml")
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), type=Card)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}", "mend or remove that file") from error
