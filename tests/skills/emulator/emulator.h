// A block of CUDA threads on one thread of a CPU, for tests where there is no GPU. Threads are coroutines that change at
// barriers and shuffles, and blocks run one after another. It has no memory model: it does not see races.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __CUDA_BF16_TYPES_EXIST__
#define __CUDA_FP16_TYPES_EXIST__

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct Place { unsigned x, y, z; };
static Place threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {
constexpr int most = 1024;
static ucontext_t scheduler, thread[most];
static char* stack[most];
static bool ended[most];
static char slot[most][64];
static int current, alive, arrived, arrived_in_warp[most / 32];
static long round, round_of_warp[most / 32];
static unsigned char* dynamic;
static void (*kernel)(const void*);
static const void* arguments;

static void yield() {
  const int self = current;
  swapcontext(&thread[self], &scheduler);
  current = self;
  threadIdx = {(unsigned)self, 0, 0};
}
static void block_barrier() {
  const long mine = round;
  if (++arrived == alive) arrived = 0, ++round;
  else while (round == mine) yield();
}
static void warp_barrier() {
  const int warp = current / 32;
  const long mine = round_of_warp[warp];
  if (++arrived_in_warp[warp] == 32) arrived_in_warp[warp] = 0, ++round_of_warp[warp];
  else while (round_of_warp[warp] == mine) yield();
}
template <class T> T exchange(T x, int lane) {
  static_assert(sizeof(T) <= sizeof(slot[0]), "values of at most a slot");
  T found;
  memcpy(slot[current], &x, sizeof(T));
  warp_barrier();
  memcpy(&found, slot[current / 32 * 32 + lane], sizeof(T));
  warp_barrier();
  return found;
}
static void enter() {
  kernel(arguments);
  ended[current] = true;
  if (--alive && arrived == alive) arrived = 0, ++round;  // those who wait do not wait for this one
  swapcontext(&thread[current], &scheduler);
}
static void run_block(unsigned threads) {
  alive = threads, arrived = 0;
  memset(arrived_in_warp, 0, sizeof(arrived_in_warp));
  for (unsigned t = 0; t < threads; ++t) {
    if (!stack[t]) stack[t] = (char*)malloc(256 << 10);
    getcontext(&thread[t]);
    thread[t].uc_stack.ss_sp = stack[t], thread[t].uc_stack.ss_size = 256 << 10, thread[t].uc_link = 0;
    makecontext(&thread[t], enter, 0);
    ended[t] = false;
  }
  while (alive)
    for (unsigned t = 0; t < threads; ++t) {
      if (ended[t]) continue;
      current = t, threadIdx = {t, 0, 0};
      swapcontext(&scheduler, &thread[t]);
    }
}
}  // namespace emulator

extern "C" void emulate(void (*kernel)(const void*), const void* arguments, unsigned gx, unsigned gy, unsigned gz,
                        unsigned threads, unsigned shared) {
  emulator::kernel = kernel, emulator::arguments = arguments;
  emulator::dynamic = (unsigned char*)aligned_alloc(128, shared / 128 * 128 + 128);
  gridDim = {gx, gy, gz}, blockDim = {threads, 1, 1};
  for (unsigned z = 0; z < gz; ++z)
    for (unsigned y = 0; y < gy; ++y)
      for (unsigned x = 0; x < gx; ++x) blockIdx = {x, y, z}, emulator::run_block(threads);
  free(emulator::dynamic);
}

#define __syncthreads() emulator::block_barrier()
#define __syncwarp() emulator::warp_barrier()
#define __syncthreads_or(x) (x)
#define __nanosleep(x)
template <class T> T __shfl_xor_sync(unsigned, T x, int mask) { return emulator::exchange(x, emulator::current % 32 ^ mask); }
template <class T> T __shfl_sync(unsigned, T x, int lane) { return emulator::exchange(x, lane % 32); }
template <class T> T __shfl_sync(unsigned, T x, int lane, int width) {
  return emulator::exchange(x, emulator::current % 32 / width * width + lane % width);
}
template <class T> T __shfl_up_sync(unsigned, T x, int by) {
  const int lane = emulator::current % 32;
  return emulator::exchange(x, lane >= by ? lane - by : lane);
}
template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> void __stcs(T* p, T x) { *p = x; }
template <class T, class S> T same_bits(S x) { T y; memcpy(&y, &x, sizeof(T)); return y; }
inline float __int_as_float(int x) { return same_bits<float>(x); }
inline int __float_as_int(float x) { return same_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
// By bisection: slow, and right to the last place.
inline double erfinv(double y) {
  double low = -6.0, high = 6.0;
  for (int step = 0; step < 80; ++step) (erf((low + high) / 2) < y ? low : high) = (low + high) / 2;
  return fabs(y) < 1.0 ? (low + high) / 2 : y / (1.0 - fabs(y));
}
inline float erfinvf(float y) { return (float)erfinv(y); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float x) {
    const uint32_t all = __float_as_uint(x);
    bits = (uint16_t)((all + 0x7fffu + (all >> 16 & 1u)) >> 16);
  }
};
inline float __bfloat162float(__nv_bfloat16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
struct __half {
  _Float16 value;
  __half() = default;
  explicit __half(float x) : value((_Float16)x) {}
};
inline float __half2float(__half x) { return (float)x.value; }
inline __half __float2half_rn(float x) { return __half(x); }
namespace emulator {
inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
inline float to_float(__half x) { return __half2float(x); }
template <class T> float element(unsigned word, int which) {
  T value;
  const unsigned short half = which ? word >> 16 : word;
  memcpy(&value, &half, 2);
  return to_float(value);
}
// mma.m16n8k16: thread 4g + t has a[g][2t], a[g + 8][2t], a[g][2t + 8], a[g + 8][2t + 8] and b[2t][g], b[2t + 8][g], each
// with its right or lower neighbour, and the sums [g][2t], [g][2t + 1], [g + 8][2t], [g + 8][2t + 1].
template <class T> void multiply(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  const int g = current % 32 / 4, t = current % 4;
  for (int k = 0; k < 4; ++k) {
    const unsigned a[4] = {exchange(a0, g * 4 + k), exchange(a1, g * 4 + k), exchange(a2, g * 4 + k), exchange(a3, g * 4 + k)};
    for (int column = 0; column < 2; ++column) {
      const int from = (t * 2 + column) * 4 + k;
      const unsigned b[2] = {exchange(b0, from), exchange(b1, from)};
      for (int half = 0; half < 2; ++half)
        for (int which = 0; which < 2; ++which) {
          sum[column] += element<T>(a[half * 2], which) * element<T>(b[half], which);
          sum[2 + column] += element<T>(a[half * 2 + 1], which) * element<T>(b[half], which);
        }
    }
  }
}
}  // namespace emulator
