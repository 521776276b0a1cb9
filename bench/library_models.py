"""Models of transformers, timm and diffusers by name, with random weights: what `bench.drawn_classes` draws from.

`python bench/library_models.py LIBRARY:MODEL DEVICE` is the program that is scanned: three forward passes.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator
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
#: Arguments of models of diffusers, whose defaults are those of released models, and of their forward passes.
DIFFUSERS: dict[str, tuple[dict[str, Any], Callable[[], dict[str, Any]]]] = {
    "UNet2DModel": (
        {"sample_size": 64, "block_out_channels": (64, 128, 128, 256), "norm_num_groups": 16},
        lambda: {"sample": torch.randn(ROWS, 3, 64, 64), "timestep": 10},
    ),
    "UNet2DConditionModel": (
        {"sample_size": 32, "block_out_channels": (64, 128, 128, 256), "cross_attention_dim": 256},
        lambda: {"sample": torch.randn(ROWS, 4, 32, 32), "timestep": 10, "encoder_hidden_states": _states(256)},
    ),
    "AutoencoderKL": (
        {
            "down_block_types": ("DownEncoderBlock2D",) * 3,
            "up_block_types": ("UpDecoderBlock2D",) * 3,
            "block_out_channels": (32, 64, 128),
        },
        lambda: {"sample": torch.randn(ROWS, 3, 128, 128)},
    ),
    "AutoencoderTiny": ({}, lambda: {"sample": torch.randn(ROWS, 3, 128, 128)}),
    "VQModel": (
        {
            "block_out_channels": (64, 128),
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
        },
        lambda: {"sample": torch.randn(ROWS, 3, 64, 64)},
    ),
    "DiTTransformer2DModel": (
        {"num_attention_heads": 6, "attention_head_dim": 64, "num_layers": 3, "sample_size": 32},
        lambda: {
            "hidden_states": torch.randn(ROWS, 4, 32, 32),
            "timestep": torch.full((ROWS,), 10),
            "class_labels": torch.arange(ROWS),
        },
    ),
    "PixArtTransformer2DModel": (
        {
            "num_attention_heads": 6,
            "attention_head_dim": 64,
            "num_layers": 3,
            "sample_size": 32,
            "cross_attention_dim": 384,
            "caption_channels": 256,
            "use_additional_conditions": False,
        },
        lambda: {
            "hidden_states": torch.randn(ROWS, 4, 32, 32),
            "encoder_hidden_states": _states(256),
            "timestep": torch.full((ROWS,), 10),
        },
    ),
    "SD3Transformer2DModel": (
        {
            "sample_size": 32,
            "num_layers": 3,
            "attention_head_dim": 64,
            "num_attention_heads": 6,
            "joint_attention_dim": 256,
            "caption_projection_dim": 384,
            "pooled_projection_dim": 128,
            "in_channels": 4,
            "out_channels": 4,
        },
        lambda: {
            "hidden_states": torch.randn(ROWS, 4, 32, 32),
            "encoder_hidden_states": _states(256),
            "pooled_projections": torch.randn(ROWS, 128),
            "timestep": torch.full((ROWS,), 10.0),
        },
    ),
    "UNet1DModel": (
        {"sample_size": 1024, "in_channels": 2, "out_channels": 2},
        lambda: {"sample": torch.randn(ROWS, 2, 1024), "timestep": 10},
    ),
    "SanaTransformer2DModel": (
        {
            "sample_size": 16,
            "num_layers": 3,
            "attention_head_dim": 32,
            "num_attention_heads": 12,
            "num_cross_attention_heads": 6,
            "cross_attention_head_dim": 64,
            "cross_attention_dim": 384,
            "caption_channels": 256,
        },
        lambda: {
            "hidden_states": torch.randn(ROWS, 32, 16, 16),
            "encoder_hidden_states": _states(256),
            "timestep": torch.full((ROWS,), 10),
        },
    ),
    "AutoencoderOobleck": (
        {
            "encoder_hidden_size": 32,
            "decoder_channels": 32,
            "decoder_input_channels": 16,
            "channel_multiples": [1, 2, 4, 8, 8],
        },
        lambda: {"sample": torch.randn(ROWS, 2, 8192)},
    ),
    "FluxTransformer2DModel": (
        {
            "in_channels": 16,
            "num_layers": 2,
            "num_single_layers": 2,
            "attention_head_dim": 64,
            "num_attention_heads": 6,
            "joint_attention_dim": 256,
            "pooled_projection_dim": 128,
            "axes_dims_rope": (8, 28, 28),
        },
        lambda: {
            "hidden_states": torch.randn(ROWS, TOKENS, 16),
            "encoder_hidden_states": _states(256),
            "pooled_projections": torch.randn(ROWS, 128),
            "timestep": torch.full((ROWS,), 0.5),
            "img_ids": torch.zeros(TOKENS, 3),
            "txt_ids": torch.zeros(64, 3),
        },
    ),
}


def _states(width: int) -> torch.Tensor:
    """What a text encoder gives: 64 tokens a row."""
    return torch.randn(ROWS, 64, width)


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

    made, arguments = DIFFUSERS[name]
    with torch.device("meta"):
        _counted(getattr(diffusers, name)(**made))
    return getattr(diffusers, name)(**made), arguments()


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
