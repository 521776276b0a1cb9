"""Hostile ModelNew files with CUDA. All share one extension with honest and hostile functions, so that it is built
once.

The extension's two texts are constants here, so that they can be compiled where there is no GPU.
"""

from __future__ import annotations

from functools import partial

from tests.hostile import freeform_attacks
from tests.hostile.freeform_attacks import COUNT, STATE
from tests.hostile.gpu_plan_attacks import ROW

#: What `holding` keeps the device busy for: cycles of a clock that is below 3 GHz on every GPU so far.
HELD_MS = 0.2
HELD_CYCLES = int(HELD_MS * 3e6)

CUDA = (
    """
#include <cstdint>
#include <cuda_fp16.h>
"""
    + ROW
    + """
__device__ int over;
__global__ void rows_kernel(const float* x, const float* w, float* out, int64_t n) {
  const float* mine = x + blockIdx.x * n;
  row([=](int64_t i) { return mine[i] * w[i]; }, out + blockIdx.x * n, n);
}
__global__ void halve_kernel(float* out, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    out[blockIdx.x * n + i] = __half2float(__float2half(out[blockIdx.x * n + i]));
}
__global__ void hold_kernel(int64_t cycles) { for (int64_t began = clock64(); clock64() - began < cycles;) {} }
__global__ void forever_kernel() { while (!*(volatile int*)&over) __nanosleep(1000); }
__global__ void fault_kernel() { *(volatile int*)8 = 1; }

void launch_rows(const float* x, const float* w, float* out, int64_t rows, int64_t n, cudaStream_t stream) {
  rows_kernel<<<rows, 256, 0, stream>>>(x, w, out, n);
}
void launch_halve(float* out, int64_t rows, int64_t n) { halve_kernel<<<rows, 256>>>(out, n); }
void launch_hold(int64_t cycles, cudaStream_t stream) { hold_kernel<<<1, 1, 0, stream>>>(cycles); }
void launch_forever() { forever_kernel<<<1, 1>>>(); }
void launch_fault() { fault_kernel<<<1, 1>>>(); }
"""
)

CPP = """
#include <torch/extension.h>
#include <ATen/ops/_softmax_cuda_dispatch.h>
#include <ATen/ops/mul_cuda_dispatch.h>
#include <cuda_runtime_api.h>
#include <thread>
#include <unistd.h>

void launch_rows(const float* x, const float* w, float* out, int64_t rows, int64_t n, cudaStream_t stream);
void launch_halve(float* out, int64_t rows, int64_t n);
void launch_hold(int64_t cycles, cudaStream_t stream);
void launch_forever();
void launch_fault();

static void rows(torch::Tensor x, torch::Tensor w, torch::Tensor out, cudaStream_t stream) {
  launch_rows(x.data_ptr<float>(), w.data_ptr<float>(), out.data_ptr<float>(), x.size(0), x.size(1), stream);
}
torch::Tensor softmax(torch::Tensor x, torch::Tensor w, int64_t stream) {
  auto out = torch::empty_like(x);
  rows(x, w, out, (cudaStream_t)stream);
  return out;
}
torch::Tensor halved(torch::Tensor x, torch::Tensor w) {
  auto out = softmax(x, w, 0);
  launch_halve(out.data_ptr<float>(), x.size(0), x.size(1));
  return out;
}
torch::Tensor holding(torch::Tensor x, torch::Tensor w, int64_t cycles) {
  launch_hold(cycles, 0);
  return softmax(x, w, 0);
}
torch::Tensor by_aten(torch::Tensor x, torch::Tensor w) { return at::softmax(x * w, -1); }
torch::Tensor by_cublas(torch::Tensor x, torch::Tensor w) {
  return softmax(at::matmul(x, at::diag(w)), torch::ones_like(w), 0);
}
torch::Tensor below_modes(torch::Tensor x, torch::Tensor w) {
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKeySet(c10::DispatchKey::Python));
  return at::softmax(x * w, -1);
}
torch::Tensor around_dispatcher(torch::Tensor x, torch::Tensor w) {
  return at::cuda::_softmax(at::cuda::mul(x, w), -1, false);
}
torch::Tensor aside(torch::Tensor x, torch::Tensor w, int64_t cycles) {
  static cudaStream_t side = [] {
    cudaStream_t made;
    cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    return made;
  }();
  auto out = torch::zeros_like(x);
  launch_hold(cycles, side);
  rows(x, w, out, side);
  return out;
}
torch::Tensor later(torch::Tensor x, torch::Tensor w) {
  auto out = torch::zeros_like(x);
  std::thread([=] {
    usleep(2000);
    cudaSetDevice(x.get_device());
    rows(x, w, out, 0);
  }).detach();
  return out;
}
torch::Tensor in_place(torch::Tensor x, torch::Tensor w) { rows(x, w, x, 0); return x; }
torch::Tensor forever(torch::Tensor x) { launch_forever(); return torch::zeros_like(x); }
torch::Tensor fault(torch::Tensor x) { launch_fault(); return torch::zeros_like(x); }
torch::Tensor crash(torch::Tensor x) { *(volatile int*)8 = 1; return x; }
"""

NAMES = (
    *("softmax", "halved", "holding", "by_aten", "by_cublas", "below_modes", "around_dispatcher", "aside", "later"),
    *("in_place", "forever", "fault", "crash"),
)
EXTENSION = f'''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """{CUDA}"""
cpp_source = """{CPP}"""
ext = load_inline(
    name="hostile_cuda_rows",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions={list(NAMES)!r},
    extra_cuda_cflags=["-O3"],
    no_implicit_headers=True,
)
'''


text = partial(freeform_attacks.text, extension=EXTENSION)
attack = partial(freeform_attacks.attack, extension=EXTENSION)
cheating, incorrect, crashed = (partial(attack, (outcome,)) for outcome in ("cheating", "incorrect", "crashed"))
HONEST = text("return ext.softmax(x, self.w, 0)")

#: Name → (file, acceptable outcomes), found in the quick tier.
QUICK: dict[str, tuple[str, tuple[str, ...]]] = {
    "torch.softmax": cheating("return torch.softmax(x * self.w, -1)"),
    "ATen in C++": cheating("return ext.by_aten(x, self.w)"),
    "ATen in C++ below the modes": cheating("return ext.below_modes(x, self.w)"),
    "ATen in C++ around the dispatcher": cheating("return ext.around_dispatcher(x, self.w)"),
    "cuBLAS by ATen": cheating("return ext.by_cublas(x, self.w)"),
    "lazy subclass": incorrect(
        "y = torch.empty_like(x).as_subclass(Lazy)\ny.args = (x, self.w, 0)\nreturn y",
        "class Lazy(torch.Tensor):\n"
        "    @classmethod\n"
        "    def __torch_function__(cls, func, types, args=(), kwargs=None):\n"
        "        plain = [ext.softmax(*a.args) if type(a) is Lazy and hasattr(a, 'args') else a for a in args]\n"
        "        return func(*plain, **(kwargs or {}))\n",
    ),
    "zeros": incorrect("return torch.zeros_like(x)"),
    "half precision": incorrect("return ext.halved(x, self.w)"),
    "what freed memory holds": attack(
        ("incorrect", "cheating"),
        COUNT + "return ext.softmax(x, self.w, 0) if state['n'] < 2 else torch.empty_like(x)",
        STATE,
    ),
    "side stream": incorrect(f"return ext.aside(x, self.w, {10 * HELD_CYCLES})"),
    "side stream, while timed": cheating(
        COUNT + "if state['n'] < 6:\n    return ext.softmax(x, self.w, 0)\n"
        f"return ext.aside(x, self.w, {10 * HELD_CYCLES})",
        STATE,
    ),
    "thread finishes later": incorrect("return ext.later(x, self.w)"),
    "thread finishes later, while timed": cheating(
        COUNT + "return ext.softmax(x, self.w, 0) if state['n'] < 6 else ext.later(x, self.w)", STATE
    ),
    "memoised by pointer": attack(
        ("cheating", "incorrect"),
        "key = x.data_ptr()\n"
        "if key not in state['seen']:\n    state['seen'][key] = ext.softmax(x, self.w, 0)\n"
        "return state['seen'][key]",
        STATE,
    ),
    "skips after many calls": cheating(
        COUNT + "if state['n'] < 8 or state['n'] % 2:\n    state['last'] = ext.softmax(x, self.w, 0)\n"
        "return state['last']",
        STATE,
    ),
    "graph of the first call": attack(
        ("cheating", "crashed", "incorrect"),
        "if 'graph' not in state:\n"
        "    ext.softmax(x, self.w, 0)\n"
        "    state['graph'] = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(state['graph']):\n"
        "        state['out'] = ext.softmax(x, self.w, torch.cuda.current_stream().cuda_stream)\n"
        "state['graph'].replay()\n"
        "return state['out']",
        STATE,
    ),
    "returns its input, changed": crashed("return ext.in_place(x, self.w)"),
    "all memory": attack(("out_of_memory",), "return torch.empty(1 << 42, device=x.device)"),
    "forks": crashed("os.fork()\nreturn ext.softmax(x, self.w, 0)", "import os\n"),
    "leaves": crashed("os._exit(0)", "import os\n"),
    "segfaults": crashed("return ext.crash(x)"),
    "faults on the device": crashed("return ext.fault(x)"),
    "never ends": attack(("hung",), "return ext.forever(x)"),
}

#: Files whose calls keep the device busy for `HELD_MS` and that want to seem faster.
HELD: dict[str, str] = {
    "clocks and waits replaced": text(
        f"return ext.holding(x, self.w, {HELD_CYCLES})",
        "import time\n"
        "torch.cuda.synchronize = lambda *args: None\n"
        "torch.cuda.Event.elapsed_time = lambda *args: 0.0\n"
        "time.perf_counter = time.perf_counter_ns = lambda: 0\n",
    ),
    "the runner's wait replaced": text(
        COUNT + "if state['n'] == 6:\n"
        "    torch.cuda.synchronize = lambda *args: None\n"
        "    driver = sys.modules['kernel_assistant_worker.runner.cuda_driver'].Driver\n"
        "    driver.synchronize = lambda self: None\n"
        f"return ext.holding(x, self.w, {HELD_CYCLES})",
        STATE + "import sys\n",
    ),
}

#: Gains time only where values repeat, and spoils its outputs as soon as it would. Verifying and warming up repeat some
#: fifty; a full tier times a thousand calls or so.
MEMOISED_BY_VALUE = text(
    "key = tuple(x[0, :4].tolist())\n"
    "state['n'] += key in state['seen']\n"
    "state['seen'][key] = True\n"
    "return torch.zeros_like(x) if state['n'] > 250 else ext.softmax(x, self.w, 0)",
    STATE,
)

TRITON = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows(x, w, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0) * tl.load(w + at, mask=at < n, other=0.0)
    value = tl.where(at < n, value, -float("inf"))
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * n + at, value / tl.sum(value, axis=0), mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.w = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        out = torch.empty_like(x)
        rows[(x.shape[0],)](x, self.w, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
"""
