"""Tests the part of a kernel's name that users see."""

from __future__ import annotations

import pytest

from kernel_assistant.records.line_profile import LineKernel

_SILU = "at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() const"
_MUL = "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        (f"void at::native::vectorized<4, {_SILU}, std::array<char*, 2ul> >(int, {_SILU})", "vectorized (silu_kernel)"),
        (
            f"void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<{_MUL} > >(int)",
            "elementwise_kernel (MulFunctor)",
        ),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<unsigned int, 4>(int)", "CatArrayBatchedCopy"),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn>(cutlass_80_simt_sgemm_128x64_8x5_nn::Params)",
            "cutlass::Kernel2 (cutlass_80_simt_sgemm_128x64_8x5_nn)",
        ),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD"),
        ("aten::mul", "aten::mul"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
    ],
)
def test_a_name_is_short_and_says_what_is_computed(name, plain):
    assert LineKernel(name=name, calls=1, ms=1.0).plain == plain
