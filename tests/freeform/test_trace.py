"""Tests the trace of a call: it names the operators and kernels of PyTorch that compute, and no others."""

from __future__ import annotations

import pytest
import torch

from kernel_assistant.worker.freeform.trace import _is_torch_kernel, operators_of

#: Names of kernels as the profiler gives them, without their arguments.
COMPUTING = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>",
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::BinaryFunctor<float> > >",
    "void at_cuda_detail::cub::DeviceScanKernel<float>",
)
PASSIVE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >",
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>",
    "Memcpy DtoD (Device -> Device)",
    "Memset (Device)",
    "rows_kernel(float const*, float const*, float*, long)",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128>(cutlass_80_tensorop_s1688gemm_128x128::Params)",
)


@pytest.mark.parametrize("name", [*COMPUTING, *PASSIVE])
def test_kernels_of_pytorch_that_compute_are_told(name: str) -> None:
    assert _is_torch_kernel(name) is (name in COMPUTING)


def test_operators_are_told() -> None:
    x = torch.randn(8, 16)
    assert operators_of(lambda: torch.softmax(x, -1)) == ["aten::_softmax", "aten::softmax"]
    assert operators_of(lambda: torch.zeros_like(x).copy_(x.t().contiguous().t())) == []
    assert operators_of(lambda: tuple(x[0, :4].tolist())) == []
