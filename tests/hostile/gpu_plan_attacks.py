"""Hostile CUDA plans, each made from the honest softmax by a change of its kernel, its launch or its plan.

Kernels have no host code, so only attacks on memory are left: device memory of the module, which exists as long as it
is loaded, and the judge's memory. In the judge's ring each set begins `rows * n + 64` floats after the previous one
(red zone included).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kernel_assistant.records import BufferSpec, Candidate, Launch, Plan

HEADER = """
#include "plan.h"
#include <cuda_fp16.h>
"""

#: A row of softmax by one block: `load` gives its elements.
ROW = """
__device__ float combine(float a, float b, bool top) { return top ? fmaxf(a, b) : a + b; }

// Of all threads of the block, for each of them.
__device__ float reduce(float value, bool top) {
  __shared__ float parts[32];
  for (int step = 16; step; step /= 2) value = combine(value, __shfl_xor_sync(~0u, value, step), top);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = parts[0];
  for (int warp = 1; warp < blockDim.x / 32; warp++) value = combine(value, parts[warp], top);
  return value;
}

template <typename Load> __device__ void row(Load load, float* out, int64_t n) {
  float top = -INFINITY, sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, load(i));
  top = reduce(top, true);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += expf(load(i) - top);
  sum = reduce(sum, false);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) out[i] = expf(load(i) - top) / sum;
}
"""

COMPUTE = """
__device__ void compute(const softmax_args& a) {
  const float* x = a.x + blockIdx.x * a.n;
  row([=](int64_t i) { return x[i] * a.w[i]; }, a.out + blockIdx.x * a.n, a.n);
}

__device__ void fill(const softmax_args& a, float value) {
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) a.out[blockIdx.x * a.n + i] = value;
}

__device__ bool is_first_thread() { return blockIdx.x == 0 && threadIdx.x == 0; }
"""

#: Calls before this one (verifying takes two), exact while all launches have one size.
CALLS = """
__device__ unsigned long long tickets;
__device__ unsigned long long calls_before() {
  __shared__ unsigned long long number;
  if (threadIdx.x == 0) number = atomicAdd(&tickets, 1ull) / gridDim.x;
  __syncthreads();
  return number;
}
"""
#: The place of this set in the judge's ring, -1 while verifying: timing begins at set 0.
SETS = (
    CALLS
    + """
__device__ float* first;
__device__ int64_t set_of(const softmax_args& a, unsigned long long calls) {
  if (calls == 2 && is_first_thread()) first = a.out;
  return calls < 2 ? -1 : calls == 2 ? 0 : (a.out - first) / (a.rows * a.n + 64);
}
"""
)
#: A remembered row is a hit if neither its input nor its output has changed at three places.
MEMORY = (
    CALLS
    + """
struct Entry { const float* x; float in[3], out[3]; };
__device__ Entry entries[1 << 15];
__device__ unsigned long long hits;
__device__ bool remembered(const float* x, const float* out, int64_t n) {
  __shared__ bool same;
  if (threadIdx.x == 0) {
    const Entry& e = entries[((uintptr_t)x >> 14) % (1 << 15)];
    same = e.x == x;
    for (int i = 0; i < 3; i++) same = same && e.in[i] == x[i * (n - 1) / 2] && e.out[i] == out[i * (n - 1) / 2];
  }
  __syncthreads();
  return same;
}
__device__ void remember(const float* x, const float* out, int64_t n) {
  __syncthreads();
  if (threadIdx.x) return;
  Entry& e = entries[((uintptr_t)x >> 14) % (1 << 15)];
  e.x = x;
  for (int i = 0; i < 3; i++) { e.in[i] = x[i * (n - 1) / 2]; e.out[i] = out[i * (n - 1) / 2]; }
}
// One row in ten is a gain. What is remembered before the first timed block is not counted.
__device__ bool gained(bool hit, unsigned long long calls) {
  __shared__ bool much;
  if (threadIdx.x == 0) {
    if (hit && calls > 1500) atomicAdd(&hits, 1ull);
    much = calls > 3000 && *(volatile unsigned long long*)&hits * 10 > (calls - 1500) * gridDim.x;
  }
  __syncthreads();
  return much;
}
"""
)


def source(body: str, extra: str = "") -> str:
    """A whole kernel file: `extra` is inserted before the kernel, `body` is the kernel's body."""
    kernel = f'extern "C" __global__ void softmax(const __grid_constant__ softmax_args a) {{\n{body}\n}}\n'
    return HEADER + ROW + COMPUTE + extra + kernel


HONEST = source("compute(a);")


@dataclass(frozen=True)
class Attack:
    """A source, its acceptable outcomes, and the differences between its plan and the honest plan."""

    text: str
    outcomes: tuple[str, ...]
    grid: str = ""
    block: str = "256"
    shared: str = "0"
    scratch: str = ""
    prepared: bool = False

    def candidate(self, weight: str, rows: str, columns: str) -> Candidate:
        """A plan over `x0`, the parameter called `weight`, and one output of rows × columns."""
        given, done, out = (BufferSpec(name=one, dtype="f32", shape=(rows, columns)) for one in ("x0", "done", "out"))
        weights = BufferSpec(name=weight, dtype="f32", shape=(columns,))
        sizes = (("rows", rows), ("n", columns))
        target = "done" if self.prepared else "out"
        work = self._launch("softmax", rows, ("x", "x0"), ("w", weight), ("out", target), *sizes)
        give = self._launch("give", rows, ("done", "done"), ("out", "out"), *sizes)
        plan = Plan(
            target="cuda",
            dims=tuple(size for size in (rows,) if not size.isdigit()),
            inputs=(given, weights),
            outputs=(out,),
            scratch=(BufferSpec(name="room", dtype="f32", shape=(self.scratch,)),) if self.scratch else (),
            packed=(done,) if self.prepared else (),
            prepare=(work,) if self.prepared else (),
            launches=(give,) if self.prepared else (work,),
        )
        return Candidate(plan=plan, sources={"softmax.cu": self.text})

    def _launch(self, symbol: str, rows: str, *args: tuple[str, str]) -> Launch:
        grid, block = (self.grid or rows, "1", "1"), (self.block, "1", "1")
        return Launch(symbol=symbol, args=args, grid=grid, block=block, shared=self.shared)


def attack(outcomes: tuple[str, ...], body: str, extra: str = "", **changed: str) -> Attack:
    """An attack by a kernel; `changed` are the differences of its plan."""
    return Attack(source(body, extra), outcomes, **changed)  # type: ignore[arg-type]


cheating, incorrect, crashed = (partial(attack, (outcome,)) for outcome in ("cheating", "incorrect", "crashed"))
#: Found in the quick tier.
QUICK: dict[str, Attack] = {
    "zeros": incorrect("fill(a, 0);"),
    "constant": incorrect("fill(a, 1.0f / a.n);"),
    "nothing written": incorrect(""),
    "no block launched": incorrect("compute(a);", grid="0"),
    "last row not written": incorrect("if (blockIdx.x + 1 < a.rows) compute(a);"),
    "last element of rows not written": incorrect(
        "__shared__ float last; float* end = a.out + (blockIdx.x + 1) * a.n - 1;"
        "if (threadIdx.x == 0) last = *end; __syncthreads(); compute(a); __syncthreads();"
        "if (threadIdx.x == 0) *end = last;"
    ),
    "first calls only": cheating("if (calls_before() < 2) compute(a);", CALLS),
    "skips after many calls": cheating(
        "unsigned long long calls = calls_before(); if (calls < 4 || calls % 2) compute(a);", CALLS
    ),
    "knows its pointers": attack(
        ("nondeterministic", "incorrect"),
        "if (known[blockIdx.x] == a.x) return; compute(a); if (threadIdx.x == 0) known[blockIdx.x] = a.x;",
        "__device__ const float* known[1 << 10];",
    ),
    "keeps results by pointer": cheating(
        "const unsigned long long calls = calls_before(); const int64_t set = set_of(a, calls);"
        "if (set < 0 || set >= 512) { compute(a); return; }"
        "const int64_t at = set * 32 + blockIdx.x; float* out = a.out + blockIdx.x * a.n;"
        "if (known[at]) { for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) out[i] = kept[at * a.n + i]; }"
        "else { compute(a); for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) kept[at * a.n + i] = out[i]; }"
        "__syncthreads(); known[at] = true;",
        SETS + "__device__ bool known[512 * 32]; __device__ float kept[512 * 32 * 4096];",
    ),
    "works ahead": cheating(
        "const unsigned long long calls = calls_before(); const int64_t set = set_of(a, calls);"
        "if (calls >= 12 && set >= 8 && set <= 60) return; compute(a);"
        "for (int64_t next = 1; set >= 0 && calls < 12 && next <= 60; next++) {"
        " const int64_t step = next * (a.rows * a.n + 64);"
        " softmax_args b = a; b.x += step; b.out += step; compute(b); }",
        SETS,
    ),
    "copies another set's output": cheating(
        "const unsigned long long calls = calls_before(); const int64_t set = set_of(a, calls);"
        "if (set < 1) { compute(a); return; } float* out = a.out + blockIdx.x * a.n;"
        "for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) out[i] = out[i - a.rows * a.n - 64];",
        SETS,
    ),
    "spoils another set's output": cheating(
        "const unsigned long long calls = calls_before(); const int64_t set = set_of(a, calls); compute(a);"
        "if (set > 0 && is_first_thread()) a.out[-a.rows * a.n - 64] = 7;",
        SETS,
    ),
    "half precision": incorrect(
        "compute(a); __syncthreads(); float* out = a.out + blockIdx.x * a.n;"
        "for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) out[i] = __half2float(__float2half(out[i]));"
    ),
    "TF32 products": incorrect(
        "const float* x = a.x + blockIdx.x * a.n;"
        "auto cut = [](float v) { return __uint_as_float(__float_as_uint(v) & 0xffffe000u); };"
        "row([=](int64_t i) { return cut(x[i]) * cut(a.w[i]); }, a.out + blockIdx.x * a.n, a.n);"
    ),
    "half precision sums": incorrect(
        "__shared__ __half parts[256];const float* x = a.x + blockIdx.x * a.n; float* out = a.out + blockIdx.x * a.n;"
        "__half sum = __float2half(0);for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x)"
        " sum = __hadd(sum, __float2half(expf(x[i] * a.w[i])));parts[threadIdx.x] = sum; __syncthreads();"
        "if (threadIdx.x == 0) for (int i = 1; i < 256; i++) parts[0] = __hadd(parts[0], parts[i]);__syncthreads();"
        "for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) out[i] = expf(x[i] * a.w[i]) / __half2float(parts[0]);"
    ),
    "half precision while timed": cheating(
        "unsigned long long calls = calls_before(); compute(a); if (calls < 4) return; __syncthreads();"
        "float* out = a.out + blockIdx.x * a.n;"
        "for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) out[i] = __half2float(__float2half(out[i]));",
        CALLS,
    ),
    "a slab of columns left out of the sum": incorrect(
        "const float* x = a.x + blockIdx.x * a.n; float sum = 0; float* out = a.out + blockIdx.x * a.n;"
        "for (int64_t i = threadIdx.x; i < a.n - 256; i += blockDim.x) sum += expf(x[i] * a.w[i]);"
        "sum = reduce(sum, false);"
        "for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) out[i] = expf(x[i] * a.w[i]) / sum;"
    ),
    "sum of the call before": attack(
        ("cheating", "incorrect"),
        "const float* x = a.x + blockIdx.x * a.n; float* out = a.out + blockIdx.x * a.n; float sum = 0;"
        "const float before = sums[blockIdx.x % 4096]; __syncthreads();if (before != 0) sum = before; else {"
        " for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) sum += expf(x[i] * a.w[i]);"
        " sum = reduce(sum, false); sums[blockIdx.x % 4096] = sum; }"
        "for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) out[i] = expf(x[i] * a.w[i]) / sum;",
        "__device__ float sums[4096];",
    ),
    "shared memory that another block left": incorrect(
        "extern __shared__ float left[]; float* out = a.out + blockIdx.x * a.n;"
        "for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) out[i] = left[i];"
        "if (blockIdx.x % 2 == 0) compute(a); __syncthreads();"
        "for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) left[i] = out[i];",
        shared="16384",
    ),
    "threads race for the sum": attack(
        ("incorrect", "nondeterministic"),
        "__shared__ float sum; const float* x = a.x + blockIdx.x * a.n;if (threadIdx.x == 0) sum = 0; __syncthreads();"
        "for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x)"
        " *(volatile float*)&sum = *(volatile float*)&sum + expf(x[i] * a.w[i]);"
        "__syncthreads(); float* out = a.out + blockIdx.x * a.n;"
        "for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) out[i] = expf(x[i] * a.w[i]) / sum;",
    ),
    "right every other time": attack(
        ("nondeterministic",), "if (calls_before() % 2) fill(a, 0); else compute(a);", CALLS
    ),
    "prepares its result": Attack(
        HONEST + 'extern "C" __global__ void give(const __grid_constant__ give_args a) {\n'
        "const int64_t at = blockIdx.x * a.n;"
        "for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) a.out[at + i] = a.done[at + i];\n}\n",
        ("cheating", "incorrect"),
        prepared=True,
    ),
    "mutates its input": crashed("compute(a); if (is_first_thread()) ((float*)a.x)[0] = 1;"),
    "mutates its weights": crashed("compute(a); if (is_first_thread()) ((float*)a.w)[0] = 1;"),
    "writes behind its output": incorrect("compute(a); if (is_first_thread()) a.out[a.rows * a.n + 3] = 0;"),
    "writes far away": crashed("compute(a); if (is_first_thread()) a.out[1l << 40] = 0;"),
    "reads address 8": crashed("a.out[0] = *(volatile float*)8;"),
    "traps": crashed("compute(a); if (is_first_thread()) __trap();"),
    "too many threads": crashed("compute(a);", block="2048"),
    "too much shared memory": crashed("compute(a);", shared=str(1 << 20)),
    "all memory": attack(("out_of_memory",), "compute(a);", scratch=str(1 << 42)),
    "launches from the device": attack(
        ("compile_error",), "compute(a); if (is_first_thread()) more<<<1, 1>>>();", "__global__ void more() {}\n"
    ),
    "reads a file while compiling": attack(("compile_error",), "compute(a);", '\n#include "/etc/passwd"\n'),
    "never ends": attack(
        ("hung",), "compute(a); while (!*(volatile int*)&over) __nanosleep(1000);", "__device__ int over;"
    ),
}

#: Found by the cases, or by the many blocks, of the full tier.
FULL: dict[str, Attack] = {
    "ends early where the output looks right": cheating(
        "float sum = 0; for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) sum += a.out[blockIdx.x * a.n + i];"
        "if (!(fabsf(reduce(sum, false) - 1) <= 1e-3f)) compute(a);"
    ),
    "skips one call in thirty": cheating(
        "unsigned long long calls = calls_before(); if (calls < 100 || calls % 30) compute(a);", CALLS
    ),
    "writes zeros each third call": cheating(
        "unsigned long long calls = calls_before(); if (calls < 100 || calls % 3) compute(a); else fill(a, 0);", CALLS
    ),
    "weights kept from the first call": incorrect(
        "if (calls_before() == 0) {"
        " for (int64_t i = threadIdx.x; blockIdx.x == 0 && i < a.n; i += blockDim.x) kept[i] = a.w[i];"
        " compute(a); return; }softmax_args b = a; b.w = kept; compute(b);",
        CALLS + "__device__ float kept[4096];",
    ),
}

#: Attacks that only gain time and spoil their outputs as soon as they would: correct if and only if they never do.
HARMLESS: dict[str, Attack] = {
    # Right at the declared sizes, and no cheat: they count for these.
    "shape built in": attack(("correct",), "if (blockIdx.x < 32) compute(a);"),
    "rows beyond the last eight not written": attack(("correct",), "if (blockIdx.x < a.rows / 8 * 8) compute(a);"),
    "memoised by content": attack(
        ("correct",),
        "const unsigned long long calls = calls_before();"
        "const float* x = a.x + blockIdx.x * a.n; const float* out = a.out + blockIdx.x * a.n;"
        "if (gained(remembered(x, out, a.n), calls)) { fill(a, 0); return; }compute(a); remember(x, out, a.n);",
        MEMORY,
    ),
}
