"""Failures of a served model, each with one line of cause and one of next step."""

from __future__ import annotations

from kernel_assistant.errors import InternalError, MissingError


class EngineError(InternalError):
    """The engine (the process that runs a model) died, hung or sent an answer that cannot be parsed."""


class EngineShortOfMemoryError(MissingError):
    """The device or the machine has too little free memory for the model and its cache."""


class ModelNotFoundError(MissingError):
    """The file, folder or hub name does not lead to a model that the engine can read."""


class NoModelError(MissingError):
    """No model is named, and the shipped model is missing."""

    def __init__(self) -> None:
        super().__init__(
            "no model installed: none is named, and the one of the package is not there",
            "name one of yours: kernel-assistant models add NAME FILE|FOLDER|HUB/NAME|URL, then models use NAME",
        )


class ContextFullError(InternalError):
    """The conversation is longer than the context of the model or of its cache."""
