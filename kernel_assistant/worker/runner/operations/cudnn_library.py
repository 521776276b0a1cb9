"""Loads cuDNN as a shared library, declares the signatures of its functions, and holds one handle. Standard library
only."""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_double, c_int, c_int64, c_size_t, c_void_p

from .opened_library import OpenedLibrary, declare

TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 9}
CROSS_CORRELATION = 1

_DESCRIPTORS = ("Tensor", "Filter", "Convolution", "Activation")
SIGNATURES: dict[str, list[object]] = {
    "cudnnCreate": [c_void_p],
    "cudnnSetStream": [c_void_p, c_void_p],
    **{f"cudnnCreate{kind}Descriptor": [c_void_p] for kind in _DESCRIPTORS},
    "cudnnSetTensorNdDescriptor": [c_void_p, c_int, c_int, c_void_p, c_void_p],
    "cudnnSetFilterNdDescriptor": [c_void_p, c_int, c_int, c_int, c_void_p],
    "cudnnSetConvolutionNdDescriptor": [c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_int, c_int],
    "cudnnSetConvolutionGroupCount": [c_void_p, c_int],
    "cudnnSetConvolutionMathType": [c_void_p, c_int],
    "cudnnSetActivationDescriptor": [c_void_p, c_int, c_int, c_double],
    "cudnnGetConvolutionForwardAlgorithm_v7": [*[c_void_p] * 5, c_int, c_void_p, c_void_p],
    "cudnnGetConvolutionBackwardDataAlgorithm_v7": [*[c_void_p] * 5, c_int, c_void_p, c_void_p],
    "cudnnGetConvolutionForwardWorkspaceSize": [*[c_void_p] * 5, c_int, c_void_p],
    "cudnnGetConvolutionBackwardDataWorkspaceSize": [*[c_void_p] * 5, c_int, c_void_p],
    "cudnnConvolutionForward": [*[c_void_p] * 7, c_int, c_void_p, c_size_t, *[c_void_p] * 3],
    "cudnnConvolutionBackwardData": [*[c_void_p] * 7, c_int, c_void_p, c_size_t, *[c_void_p] * 3],
    "cudnnConvolutionBiasActivationForward": [*[c_void_p] * 7, c_int, c_void_p, c_size_t, *[c_void_p] * 8],
    "cudnnAddTensor": [c_void_p] * 7,
    "cudnnActivationForward": [c_void_p] * 8,
    "cudnnBackendCreateDescriptor": [c_int, c_void_p],
    "cudnnBackendDestroyDescriptor": [c_void_p],
    "cudnnBackendSetAttribute": [c_void_p, c_int, c_int, c_int64, c_void_p],
    "cudnnBackendGetAttribute": [c_void_p, c_int, c_int, c_int64, c_void_p, c_void_p],
    "cudnnBackendFinalize": [c_void_p],
    "cudnnBackendExecute": [c_void_p, c_void_p, c_void_p],
}


class Cudnn(OpenedLibrary):
    """The library cuDNN. Users of its handle take `lock`, because the stream is a property of the handle. Descriptors
    live as long as the process."""

    create, status_name = "cudnnCreate", "cudnnGetErrorString"

    def __init__(self, paths: dict[str, str]) -> None:
        super().__init__(load(paths))
        self.lock = threading.Lock()

    def descriptor(self, kind: str) -> c_void_p:
        made = c_void_p()
        self.check(f"cudnnCreate{kind}Descriptor", byref(made))
        return made


def load(paths: dict[str, str]) -> ctypes.CDLL:
    """Loads cuDNN and sets the signatures of its functions. cuDNN looks up other libraries by name, so these are loaded
    before it. Raises OSError."""
    for needed in ("nvrtc", "cublaslt"):
        if needed in paths:
            ctypes.CDLL(paths[needed])
    lib = ctypes.CDLL(paths["cudnn"])
    declare(lib, SIGNATURES, Cudnn.status_name)
    lib.cudnnGetVersion.restype = c_size_t
    return lib
