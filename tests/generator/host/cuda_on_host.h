// CUDA's words for a host compiler: every thread of a block is a coroutine, and a barrier lets the next one run. That is
// right for kernels whose threads all come to the same barriers; it says nothing about races between them.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
struct ka_index { unsigned x, y, z; };
inline ka_index threadIdx, blockIdx;
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> void __stcs(T* p, T x) { *p = x; }

struct __nv_bfloat16 { uint16_t bits; };
inline float __bfloat162float(__nv_bfloat16 x) {
  const uint32_t bits = (uint32_t)x.bits << 16;
  float y;
  memcpy(&y, &bits, 4);
  return y;
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return {(uint16_t)(x != x ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
typedef _Float16 __half;
inline float __half2float(__half x) { return (float)x; }
inline __half __float2half_rn(float x) { return (__half)x; }

namespace on_host {
inline ucontext_t scheduler;
inline std::vector<ucontext_t> threads;
inline std::vector<char> done;
inline std::function<void()> kernel;
inline unsigned current;

inline void barrier() { swapcontext(&threads[current], &scheduler); }
inline void enter() {
  kernel();
  done[current] = 1;
}

// All blocks, one after the other, and the threads of a block in turns from barrier to barrier.
inline void run(unsigned blocks, unsigned size, const std::function<void()>& body) {
  constexpr size_t stack = 1 << 16;
  std::vector<char> stacks(size * stack);
  kernel = body;
  threads.resize(size);
  for (unsigned block = 0; block < blocks; ++block) {
    done.assign(size, 0);
    for (unsigned thread = 0; thread < size; ++thread) {
      getcontext(&threads[thread]);
      threads[thread].uc_stack.ss_sp = &stacks[thread * stack];
      threads[thread].uc_stack.ss_size = stack;
      threads[thread].uc_link = &scheduler;
      makecontext(&threads[thread], enter, 0);
    }
    for (bool waiting = true; waiting;) {
      waiting = false;
      for (unsigned thread = 0; thread < size; ++thread) {
        if (done[thread]) continue;
        current = thread;
        threadIdx = {thread, 0, 0};
        blockIdx = {block, 0, 0};
        swapcontext(&scheduler, &threads[thread]);
        waiting |= !done[thread];
      }
    }
  }
}

// A buffer of exactly its size, aligned to 16 bytes, so that the sanitizer notices what is read behind it.
inline char* read_all(FILE* file, size_t bytes) {
  char* found = (char*)malloc(bytes);
  if (fread(found, 1, bytes, file) != bytes) abort();
  return found;
}
}  // namespace on_host

inline void __syncthreads() { on_host::barrier(); }
inline void __syncwarp() { on_host::barrier(); }
