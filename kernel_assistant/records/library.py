"""The closed list of operations of cuBLASLt and cuDNN that a launch may name, and the fields (operands) and settings of
each. See docs/libraries.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Pairs = Sequence[tuple[str, str]]

FLOATS = ("f64", "f32", "bf16", "f16")
#: `flags`: TF32 for float32 exactly where PyTorch would use it for this operation, on tensors in the layout `given`.
#: `tf32`: TF32 whatever the flags say.
COMPUTE = ("f32", "flags", "tf32")
#: `split`: each float32 operand is the sum of one with TF32's mantissa and of one with the bits below it (`a_low`,
#: `b_low`). Products of these are computed in TF32 and added in float32.
MATMUL_COMPUTE = (*COMPUTE, "split")
_SWITCH = ("0", "1")

MATMUL_SIZES = ("m", "n", "k", "batch", "lda", "ldb", "ldo", "stride_a", "stride_b", "stride_o")
MATMUL_SETTINGS = {
    "transpose_a": _SWITCH,
    "transpose_b": _SWITCH,
    "alpha": None,
    "beta": None,
    "epilogue": ("none", "bias", "relu", "bias_relu", "gelu", "bias_gelu"),
    "compute": MATMUL_COMPUTE,
}
CONV_SETTINGS = {
    "stride": None,
    "padding": None,
    "dilation": None,
    "groups": None,
    "layout": ("nchw", "nhwc"),
    "given": ("nchw", "nhwc"),
    "epilogue": ("none", "bias", "bias_relu", "bias_silu", "add", "add_relu", "bias_add", "bias_add_relu"),
    "compute": COMPUTE,
}
OPERATIONS = ("cublaslt.matmul", "cudnn.conv", "cudnn.conv_transpose")


def check_library_launch(library: str, args: Pairs, settings: Pairs) -> None:
    """Raises ValueError unless `library` is a known operation such as "cublaslt.matmul", and `args` and `settings` have
    exactly the fields and settings of this operation."""
    if library not in OPERATIONS:
        raise ValueError(f"unknown library operation {library!r}: want one of {', '.join(OPERATIONS)}")
    given = dict(settings)
    wanted = MATMUL_SETTINGS if library == "cublaslt.matmul" else CONV_SETTINGS
    if len(given) != len(settings) or set(given) != set(wanted):
        raise ValueError(f"{library}: settings must be {', '.join(wanted)}")
    if library == "cudnn.conv_transpose" and given["epilogue"] != "none":
        raise ValueError(f"{library}: nothing is fused behind it, epilogue must be none")
    for key, allowed in wanted.items():
        if allowed is not None and given[key] not in allowed:
            raise ValueError(f"{library}: {key} is {given[key]!r}, want one of {', '.join(allowed)}")
    fields = [field for field, _ in args]
    buffers, sizes = _matmul_fields(given) if library == "cublaslt.matmul" else _conv_fields(given)
    if fields != [*buffers, *sizes]:
        raise ValueError(f"{library}: fields must be {', '.join((*buffers, *sizes))}, in this order")


def buffer_fields(library: str, settings: Pairs) -> tuple[str, ...]:
    """Returns the names of the fields of a checked launch whose values are buffers; the last one is `out`."""
    given = dict(settings)
    return (_matmul_fields(given) if library == "cublaslt.matmul" else _conv_fields(given))[0]


def _matmul_fields(settings: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    try:
        _, beta = float(settings["alpha"]), float(settings["beta"])
    except ValueError as error:
        raise ValueError("cublaslt.matmul: alpha and beta must be numbers") from error
    added = ("c",) if beta else ()
    bias = ("bias",) if settings["epilogue"].startswith("bias") else ()
    low = ("a_low", "b_low") if settings["compute"] == "split" else ()
    return ("a", "b", *low, *added, *bias, "out"), (*MATMUL_SIZES, *(("ldc", "stride_c") if beta else ()))


def _conv_fields(settings: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    stride, padding, dilation = (_integers(settings[key], key) for key in ("stride", "padding", "dilation"))
    (groups,) = _integers(settings["groups"], "groups")
    rank = len(stride)
    if not 1 <= rank <= 3 or len(padding) != rank or len(dilation) != rank:
        raise ValueError("cudnn: stride, padding and dilation name the same one to three dimensions")
    if min(stride) < 1 or min(dilation) < 1 or min(padding) < 0 or groups < 1:
        raise ValueError("cudnn: stride, dilation and groups are at least 1, padding at least 0")
    if rank == 1 and "nhwc" in (settings["layout"], settings["given"]):
        raise ValueError("cudnn: nhwc needs two or three dimensions")
    steps = settings["epilogue"].split("_")
    added = (*(("z",) if "add" in steps else ()), *(("bias",) if "bias" in steps else ()))
    spatial = tuple(f"{letter}{index}" for letter in "ifo" for index in range(rank))
    return ("x", "w", *added, "out"), ("n", "c", "k", *spatial)


def _integers(text: str, key: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"cudnn: {key} is {text!r}, want integers with commas between") from error
