"""CUDA inside the sandbox: a context, memory and a kernel, through the driver alone."""

from __future__ import annotations

import pytest

from kernel_assistant.sandbox.contract import GIB, Sandbox, SandboxLimits, SandboxSpec
from kernel_assistant.sandbox.launcher import PYTHON
from kernel_assistant.sandbox.run import run

ADD_ONE = r"""
import ctypes, struct, sys
cuda = ctypes.CDLL("libcuda.so.1")
def check(code, what):
    if code: sys.exit(f"{what}: CUDA error {code}")
PTX = b'''.version 7.0
.target sm_70
.address_size 64
.visible .entry add_one(.param .u64 p) {
  .reg .b64 %rd<4>; .reg .b32 %r<3>; .reg .f32 %f<3>;
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd3, %rd2, %rd3;
  ld.global.f32 %f1, [%rd3]; add.f32 %f2, %f1, 0f3F800000; st.global.f32 [%rd3], %f2; ret;
}'''
check(cuda.cuInit(0), "init")
context, module, kernel, memory = (ctypes.c_void_p() for _ in range(4))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "context")
check(cuda.cuCtxSetCurrent(context), "current")
check(cuda.cuModuleLoadData(ctypes.byref(module), PTX), "module")
check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"add_one"), "function")
check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 30)), "memory")
host = (ctypes.c_float * 32)(*range(32))
check(cuda.cuMemcpyHtoD_v2(memory, host, ctypes.c_size_t(128)), "to the device")
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, arguments, None), "launch")
check(cuda.cuMemcpyDtoH_v2(host, memory, ctypes.c_size_t(128)), "from the device")
print(sum(host))
"""


@pytest.mark.gpu
def test_a_kernel_runs_inside(sandbox: Sandbox, workspace: str) -> None:
    limits = SandboxLimits(memory_bytes=8 * GIB)
    spec = SandboxSpec(argv=(PYTHON, "-I", "-S", "-c", ADD_ONE), workspace=workspace, gpu=True, limits=limits)
    done = run(sandbox, spec, timeout=60)
    assert (done.stderr, done.stdout) == (b"", b"528.0\n")


@pytest.mark.gpu
def test_without_the_gpu_in_the_spec_there_is_none(sandbox: Sandbox, workspace: str) -> None:
    spec = SandboxSpec(argv=(PYTHON, "-I", "-S", "-c", ADD_ONE), workspace=workspace)
    assert run(sandbox, spec, timeout=60).returncode != 0
