"""Models of transformers, timm and diffusers by name, with random weights: what `bench.drawn_classes` draws from.

`python bench/library_models.py LIBRARY:MODEL DEVICE` is the program that is scanned: three forward passes.
"""

from __future__ import annotations

import inspect
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

#: Larger models are not drawn, so that two cores run them in seconds.
MOST_PARAMETERS = 120_000_000
PASSES = 3
ROWS, TOKENS = 2, 256
#: Sizes of a configuration of transformers that only repeat what is there.
FEWER = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers")
LEAST_LAYERS = 2
#: Arguments of models of diffusers, whose defaults are those of released models, and inputs of their forward passes:
#: numbers, or tensors by their sizes.
DIFFUSERS: dict[str, dict[str, dict[str, Any]]] = json.loads(Path(__file__).with_suffix(".json").read_text())


def names(library: str, drawing: random.Random) -> Iterator[str]:
    """All models of a library, each family once, in an order that `drawing` decides."""
    if library == "timm":
        import timm

        families = sorted(timm.list_modules())
        drawing.shuffle(families)
        for family in families:
            models = sorted(timm.list_models(module=family))
            if models:
                yield f"timm:{drawing.choice(models)}"
        return
    if library == "transformers":
        from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

        found = sorted(MODEL_MAPPING_NAMES)
    else:
        found = sorted(DIFFUSERS)
    drawing.shuffle(found)
    yield from (f"{library}:{name}" for name in found)


def build(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model in evaluation mode, and arguments for its forward pass. Raises what its library raises, and ValueError
    for a model with more than MOST_PARAMETERS parameters.
    """
    torch.manual_seed(0)
    library, _, model = name.partition(":")
    made, arguments = {"timm": _timm, "transformers": _transformers, "diffusers": _diffusers}[library](model)
    return made.eval(), arguments


def _timm(name: str) -> tuple[nn.Module, dict[str, Any]]:
    import timm

    with torch.device("meta"):
        _counted(timm.create_model(name, num_classes=10))
    model = timm.create_model(name, num_classes=10)
    return model, {"x": torch.randn(ROWS, *model.default_cfg["input_size"])}


def _transformers(name: str) -> tuple[nn.Module, dict[str, Any]]:
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(name)
    parts = [config, *(one for one in vars(config).values() if hasattr(one, "to_dict"))]
    for part in parts:
        for size in FEWER:
            if isinstance(getattr(part, size, None), int):
                setattr(part, size, min(getattr(part, size), LEAST_LAYERS))
        if isinstance(getattr(part, "layer_types", None), list):
            part.layer_types = part.layer_types[:LEAST_LAYERS]
        part.use_cache = False
    with torch.device("meta"):
        _counted(AutoModel.from_config(config))
    model = AutoModel.from_config(config)
    return model, _words(model, config)


def _words(model: nn.Module, config: Any) -> dict[str, Any]:
    """Arguments by the name that a model of transformers has for its main input."""
    main = str(getattr(model, "main_input_name", "input_ids"))
    ids = torch.randint(5, min(1000, getattr(config, "vocab_size", None) or 1000), (ROWS, TOKENS))
    arguments: dict[str, Any] = {}
    if main == "pixel_values":
        side = getattr(config, "image_size", None) or 224
        side = side if isinstance(side, int) else side[0]
        arguments[main] = torch.randn(ROWS, getattr(config, "num_channels", 3), side, side)
    elif main == "input_values":
        arguments[main] = torch.randn(ROWS, 16000)
    elif main == "input_features":
        length = 2 * getattr(config, "max_source_positions", 500)
        arguments[main] = torch.randn(ROWS, getattr(config, "num_mel_bins", 80), length)
    else:
        arguments[main] = ids
    taken = inspect.signature(model.forward).parameters
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in taken:
        arguments["decoder_input_ids"] = ids[:, :64]
    return arguments


def _diffusers(name: str) -> tuple[nn.Module, dict[str, Any]]:
    import diffusers

    made, inputs = DIFFUSERS[name]["made"], DIFFUSERS[name]["inputs"]
    with torch.device("meta"):
        _counted(getattr(diffusers, name)(**made))
    return getattr(diffusers, name)(**made), {key: _input(one) for key, one in inputs.items()}


def _input(described: Any) -> Any:
    """A number as it is; random values, zeros, numbers in a row or one value of all, by their sizes."""
    match described:
        case {"randn": sizes}:
            return torch.randn(sizes)
        case {"zeros": sizes}:
            return torch.zeros(sizes)
        case {"arange": count}:
            return torch.arange(count)
        case {"full": sizes, "value": value}:
            return torch.full(sizes, value)
    return described


def _counted(model: nn.Module) -> None:
    found = sum(one.numel() for one in model.parameters())
    if found > MOST_PARAMETERS:
        raise ValueError(f"{found / 1e6:.0f} million parameters")


def main(name: str, device: str) -> None:
    model, arguments = build(name)
    model.to(device)
    moved = {key: one.to(device) if isinstance(one, torch.Tensor) else one for key, one in arguments.items()}
    with torch.no_grad():
        for _ in range(PASSES):
            model(**moved)


if __name__ == "__main__":
    main(*sys.argv[1:])
