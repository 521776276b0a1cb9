// CUDA side: vector loads and stores, row access with tails, reductions over warps, blocks and clusters, block scans.
// Functions of float are the accurate ones of the CUDA library; ka_reciprocal alone is an approximation, to one unit in
// the last place (PTX manual, rcp).
#pragma once
#include <stdint.h>

#define KA_FN static __device__ __forceinline__

KA_FN float ka_get(float x) { return x; }
KA_FN double ka_get(double x) { return x; }
KA_FN bool ka_get(bool x) { return x; }
KA_FN int64_t ka_get(int64_t x) { return x; }
KA_FN int64_t ka_get(int32_t x) { return x; }
KA_FN int64_t ka_get(int16_t x) { return x; }
KA_FN int64_t ka_get(int8_t x) { return x; }
KA_FN int64_t ka_get(uint8_t x) { return x; }
KA_FN void ka_put(float& to, float x) { to = x; }
KA_FN void ka_put(double& to, double x) { to = x; }
KA_FN void ka_put(bool& to, bool x) { to = x; }
KA_FN void ka_put(int64_t& to, int64_t x) { to = x; }
KA_FN void ka_put(int32_t& to, int64_t x) { to = (int32_t)x; }
KA_FN void ka_put(int16_t& to, int64_t x) { to = (int16_t)x; }
KA_FN void ka_put(int8_t& to, int64_t x) { to = (int8_t)x; }
KA_FN void ka_put(uint8_t& to, int64_t x) { to = (uint8_t)x; }
#ifdef __CUDA_BF16_TYPES_EXIST__
KA_FN float ka_get(__nv_bfloat16 x) { return __bfloat162float(x); }
KA_FN void ka_put(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }
#endif
#ifdef __CUDA_FP16_TYPES_EXIST__
KA_FN float ka_get(__half x) { return __half2float(x); }
KA_FN void ka_put(__half& to, float x) { to = __float2half_rn(x); }
#endif
KA_FN int32_t ka_as_int(float x) { return __float_as_int(x); }
KA_FN float ka_as_float(int32_t bits) { return __int_as_float(bits); }
KA_FN float ka_round_bf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  return __uint_as_float(x != x ? 0x7fc00000u : (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}
KA_FN float ka_round_f16(float x) {
  float y;
  asm("{ .reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(y) : "f"(x));
  return y;
}

#define KA_LIBRARY(name, single, exact) \
  KA_FN float ka_##name(float x) { return single(x); } \
  KA_FN double ka_##name(double x) { return exact(x); }
KA_LIBRARY(exp, expf, exp) KA_LIBRARY(exp2, exp2f, exp2) KA_LIBRARY(expm1, expm1f, expm1) KA_LIBRARY(log, logf, log)
KA_LIBRARY(log2, log2f, log2) KA_LIBRARY(log10, log10f, log10) KA_LIBRARY(log1p, log1pf, log1p)
KA_LIBRARY(sin, sinf, sin) KA_LIBRARY(cos, cosf, cos) KA_LIBRARY(tan, tanf, tan) KA_LIBRARY(asin, asinf, asin)
KA_LIBRARY(acos, acosf, acos) KA_LIBRARY(atan, atanf, atan) KA_LIBRARY(sinh, sinhf, sinh) KA_LIBRARY(cosh, coshf, cosh)
KA_LIBRARY(tanh, tanhf, tanh) KA_LIBRARY(erf, erff, erf) KA_LIBRARY(erfc, erfcf, erfc) KA_LIBRARY(sqrt, sqrtf, sqrt)
KA_LIBRARY(rsqrt, rsqrtf, rsqrt) KA_LIBRARY(abs, fabsf, fabs) KA_LIBRARY(floor, floorf, floor)
KA_LIBRARY(ceil, ceilf, ceil) KA_LIBRARY(round, rintf, rint) KA_LIBRARY(trunc, truncf, trunc)
KA_LIBRARY(lgamma, lgammaf, lgamma) KA_LIBRARY(erfinv, erfinvf, erfinv)
KA_FN float ka_reciprocal(float x) { float y; asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
KA_FN double ka_reciprocal(double x) { return 1.0 / x; }
KA_FN float ka_pow(float x, float y) { return powf(x, y); }
KA_FN double ka_pow(double x, double y) { return pow(x, y); }
KA_FN float ka_fmod(float x, float y) { return fmodf(x, y); }
KA_FN double ka_fmod(double x, double y) { return fmod(x, y); }
template <class T> KA_FN T ka_left(T a, T b) { return b == T(0) ? T(0) : ka_fmod(a, b); }
template <class T> KA_FN T ka_quotient(T a, T b) { return (T)(a / b); }
KA_FN float ka_atan2(float y, float x) { return atan2f(y, x); }
KA_FN double ka_atan2(double y, double x) { return atan2(y, x); }
// A nan on either side wins, as in PyTorch.
KA_FN float ka_max(float a, float b) { float y; asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
KA_FN float ka_min(float a, float b) { float y; asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
KA_FN double ka_max(double a, double b) { return (a > b) | (a != a) ? a : b; }
KA_FN double ka_min(double a, double b) { return (a < b) | (a != a) ? a : b; }

#include "ka_math.h"

// ---- Vector access. V elements from p, which is aligned to V elements; H: read or written once, do not keep in L1.
template <int BYTES> struct ka_word;
template <> struct ka_word<1> { typedef unsigned char type; };
template <> struct ka_word<2> { typedef unsigned short type; };
template <> struct ka_word<4> { typedef unsigned int type; };
template <> struct ka_word<8> { typedef uint2 type; };
template <> struct ka_word<16> { typedef uint4 type; };
template <class T, int V> struct ka_pack {
  static constexpr int bytes = V * sizeof(T) < 16 ? V * sizeof(T) : 16, count = V * sizeof(T) / bytes;
  typedef typename ka_word<bytes>::type word;
  union { word words[count]; T values[V]; };
  __device__ __forceinline__ ka_pack() {}
};
template <int H, class T, int V> KA_FN void ka_load_words(ka_pack<T, V>& pack, const T* p) {
  typedef typename ka_pack<T, V>::word word;
#pragma unroll
  for (int w = 0; w < pack.count; ++w) {
    const word* from = reinterpret_cast<const word*>(p) + w;
    pack.words[w] = H ? __ldcs(from) : *from;
  }
}
template <int V, int H, class T> KA_FN void ka_load(T (&out)[V], const T* p) {
  ka_pack<T, V> pack;
  ka_load_words<H>(pack, p);
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = pack.values[k];
}
// The same from what no thread writes, never taken apart into shorter loads where elements are used one by one.
template <int V, class T> KA_FN void ka_load_whole(T (&out)[V], const T* p) {
  ka_pack<T, V> pack;
#pragma unroll
  for (int w = 0; w < pack.count; ++w) pack.words[w] = __ldg(reinterpret_cast<const typename ka_pack<T, V>::word*>(p) + w);
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = pack.values[k];
}
// 16 bytes that are read once. In PTX such loads stay in front of a later ka_mma; ptxas may still mix them with it.
KA_FN uint4 ka_stream(const void* p) {
  uint4 x;
  asm volatile("ld.global.cs.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(p));
  return x;
}
template <int V, int H, class T> KA_FN void ka_store(T* p, const T (&in)[V]) {
  ka_pack<T, V> pack;
  typedef typename ka_pack<T, V>::word word;
#pragma unroll
  for (int k = 0; k < V; ++k) pack.values[k] = in[k];
#pragma unroll
  for (int w = 0; w < pack.count; ++w) {
    word* to = reinterpret_cast<word*>(p) + w;
    if (H) __stcs(to, pack.words[w]); else *to = pack.words[w];
  }
}

template <int V, class T> KA_FN void ka_fill(T (&out)[V], T value) {
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = value;
}

// ---- Rows: elements e … e+V-1 of a row of n; what is outside [0, n) is not touched and reads as 0.
template <int V, int H, bool FULL, class T, class I>
KA_FN void ka_row_load(T (&out)[V], const T* __restrict__ row, I e, I n) {
  // Taken apart behind the branch: short elements would be right after the load, which then is waited for at once.
  ka_pack<T, V> pack;
  if (FULL || (e >= 0 && e + V <= n)) {
    ka_load_words<H>(pack, row + e);
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) pack.values[k] = e + k >= 0 && e + k < n ? row[e + k] : T();
  }
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = pack.values[k];
}
template <int V, int H, bool FULL, class T, class I>
KA_FN void ka_row_store(T* row, I e, I n, const T (&in)[V]) {
  if (FULL || (e >= 0 && e + V <= n)) {
    ka_store<V, H>(row + e, in);
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (e + k >= 0 && e + k < n) row[e + k] = in[k];
  }
}
// Elements e+k counted from the end of the row: positions n-1-(e+k).
template <int V, int H, bool FULL, class T, class I>
KA_FN void ka_row_load_reversed(T (&out)[V], const T* __restrict__ row, I e, I n) {
  T there[V];
  ka_row_load<V, H, FULL>(there, row, n - V - e, n);
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = there[V - 1 - k];
}
template <int V, int H, bool FULL, class T, class I>
KA_FN void ka_row_store_reversed(T* row, I e, I n, const T (&in)[V]) {
  T there[V];
#pragma unroll
  for (int k = 0; k < V; ++k) there[k] = in[V - 1 - k];
  ka_row_store<V, H, FULL>(row, n - V - e, n, there);
}

// Elements e … e+V-1 of a row of n to `to` in shared memory, which is aligned like the row; what is outside [0, n) becomes 0.
// Whole vectors of 16 bytes are copied asynchronously: the thread that copied them sees them after ka_copies_wait.
template <int V, bool FULL, class T, class I> KA_FN void ka_row_copy(T* to, const T* __restrict__ row, I e, I n) {
  if (FULL || (e >= 0 && e + V <= n)) {
#if __CUDA_ARCH__ >= 800
    if (V * sizeof(T) == 16) {
      const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(row + e) : "memory");
      return;
    }
#endif
    T whole[V];
    ka_load<V, 0>(whole, row + e);
    ka_store<V, 0>(to, whole);
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) to[k] = e + k >= 0 && e + k < n ? row[e + k] : T();
  }
}
// 16 bytes, or zeros if not `inside`, to shared memory, in groups: the thread that copied a group sees it after
// ka_groups_wait<N>, which waits for all but its last N groups.
KA_FN void ka_copy(uint4* to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(inside ? 16 : 0) : "memory");
#else
  *to = inside ? *(const uint4*)from : uint4{0, 0, 0, 0};
#endif
}
KA_FN void ka_group() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int N> KA_FN void ka_groups_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
KA_FN void ka_copies_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// ---- Reductions.
// Those of integers wrap.
struct ka_sum {
  template <class T> KA_FN T join(T a, T b) { return a + b; }
  KA_FN int64_t join(int64_t a, int64_t b) { return ka_add(a, b); }
};
struct ka_prod {
  template <class T> KA_FN T join(T a, T b) { return a * b; }
  KA_FN int64_t join(int64_t a, int64_t b) { return ka_mul(a, b); }
};
struct ka_top { template <class T> KA_FN T join(T a, T b) { return ka_max(a, b); } };
struct ka_bottom { template <class T> KA_FN T join(T a, T b) { return ka_min(a, b); } };
struct ka_exponential_sum { template <class T> KA_FN T join(T a, T b) { return ka_logaddexp(a, b); } };

// Sums of many numbers: `sum` is added to `total`, and what rounding leaves out of it to `rest` (Knuth, The Art of Computer
// Programming 2, 4.2.2); it begins anew. ka_kept: the whole sum. What is infinite has no rest.
KA_FN void ka_keep(float& sum, float& total, float& rest) {
  const float both = total + sum, back = both - total;
  rest += (total - (both - back)) + (sum - back);
  total = both;
  sum = 0;
}
KA_FN void ka_kept(float& sum, float total, float rest) {
  const float whole = total + (rest + sum);
  sum = whole == whole ? whole : total + sum;
}
template <int V> KA_FN void ka_keep(float (&sum)[V], float (&total)[V], float (&rest)[V]) {
#pragma unroll
  for (int k = 0; k < V; ++k) ka_keep(sum[k], total[k], rest[k]);
}
template <int V> KA_FN void ka_kept(float (&sum)[V], float (&total)[V], float (&rest)[V]) {
#pragma unroll
  for (int k = 0; k < V; ++k) ka_kept(sum[k], total[k], rest[k]);
}

// Count, mean and Σ(x - mean)², joined by Chan's formula; elements are added relative to the thread's first.
template <class T> struct ka_moments {
  T count, mean, m2;
  KA_FN ka_moments none() { return {T(0), T(0), T(0)}; }
};
template <class T> struct ka_moments_of {
  T shift, count, s1, s2, t1, c1, t2, c2;
  __device__ __forceinline__ ka_moments_of() : shift(0), count(0), s1(0), s2(0), t1(0), c1(0), t2(0), c2(0) {}
  __device__ __forceinline__ void add(T x) {
    shift = count == T(0) ? x : shift;
    count += T(1);
    s1 += x - shift;
    s2 += (x - shift) * (x - shift);
  }
  __device__ __forceinline__ ka_moments<T> done() const {
    if (count == T(0)) return {T(0), T(0), T(0)};
    const T first = t1 + (c1 + s1), second = t2 + (c2 + s2);
    return {count, shift + first / count, second - first * first / count};
  }
};
KA_FN void ka_keep(ka_moments_of<float>& of) { ka_keep(of.s1, of.t1, of.c1), ka_keep(of.s2, of.t2, of.c2); }
template <int V> KA_FN void ka_keep(ka_moments_of<float> (&of)[V]) {
#pragma unroll
  for (int k = 0; k < V; ++k) ka_keep(of[k]);
}
struct ka_chan {
  template <class T> KA_FN ka_moments<T> join(ka_moments<T> a, ka_moments<T> b) {
    const T count = a.count + b.count, share = count == T(0) ? T(0) : b.count / count, delta = b.mean - a.mean;
    return {count, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.count * share};
  }
};
// Maximum and Σ exp(x - maximum).
template <class T> struct ka_exponents {
  T top, total;
  KA_FN ka_exponents none() { return {T(-INFINITY), T(0)}; }
  template <int V> __device__ __forceinline__ void add(const T (&x)[V]) {
    T high = top;
#pragma unroll
    for (int k = 0; k < V; ++k) high = ka_max(x[k], high);
    if (high == T(-INFINITY)) return;
    if (!(high == top)) total *= ka_exp(top - high);
    top = high;
    T sum = T(0);
#pragma unroll
    for (int k = 0; k < V; ++k) sum += ka_exp(x[k] - high);
    total += sum;
  }
};
struct ka_rescale {
  template <class T> KA_FN ka_exponents<T> join(ka_exponents<T> a, ka_exponents<T> b) {
    const T top = ka_max(a.top, b.top);
    if (top == T(-INFINITY)) return {top, T(0)};
    return {top, a.total * ka_exp(a.top - top) + b.total * ka_exp(b.top - top)};
  }
};

template <class T> KA_FN T ka_across(T x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
KA_FN bool ka_across(bool x, int mask) { return __shfl_xor_sync(0xffffffffu, (int)x, mask) != 0; }
KA_FN int64_t ka_across(int64_t x, int mask) { return (int64_t)__shfl_xor_sync(0xffffffffu, (long long)x, mask); }
template <class T> KA_FN ka_moments<T> ka_across(ka_moments<T> x, int mask) {
  return {ka_across(x.count, mask), ka_across(x.mean, mask), ka_across(x.m2, mask)};
}
template <class T> KA_FN ka_exponents<T> ka_across(ka_exponents<T> x, int mask) {
  return {ka_across(x.top, mask), ka_across(x.total, mask)};
}
// sum [16, 8] += a [16, 16] · b [16, 8] by the 32 threads of a warp (PTX manual, mma.m16n8k16).
#define KA_MMA(type, name) \
  KA_FN void ka_mma(type, float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) { \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1)); \
  }
#ifdef __CUDA_BF16_TYPES_EXIST__
KA_MMA(__nv_bfloat16, "bf16")
#endif
#ifdef __CUDA_FP16_TYPES_EXIST__
KA_MMA(__half, "f16")
#endif
#undef KA_MMA
// Over W neighbouring threads of a warp.
template <class OP, int W = 32, class S> KA_FN S ka_warp_reduce(S x) {
#pragma unroll
  for (int mask = W / 2; mask > 0; mask >>= 1) x = OP::join(x, ka_across(x, mask));
  return x;
}
// The address at which block `rank` of the cluster has its own `here`, and a store to such an address.
KA_FN uint32_t ka_peer(const void* here, int rank) {
  uint32_t at;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"((uint32_t)__cvta_generic_to_shared(here)), "r"(rank));
  return at;
}
KA_FN void ka_put_peer(uint32_t at, float x) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(at), "f"(x) : "memory");
}
// Over all threads of a block of T, and over the C blocks of a cluster; every thread gets the result. `none` is the
// neutral value. Each call site has its own ID, and so its own shared memory: one barrier is enough.
template <class S> KA_FN S ka_remote(const S* here, int rank) {
  const uint32_t at = ka_peer(here, rank);
  union { S value; uint32_t words[(sizeof(S) + 3) / 4]; } found;
#pragma unroll
  for (int w = 0; w < (int)(sizeof(S) + 3) / 4; ++w)
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(found.words[w]) : "r"(at + 4 * w) : "memory");
  return found.value;
}
// What other blocks of the cluster wrote before they arrived is visible after the wait.
KA_FN void ka_cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
KA_FN void ka_cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
KA_FN void ka_cluster_barrier() { ka_cluster_arrive(), ka_cluster_wait(); }
template <int ID, int T, int C, class OP, class S> KA_FN S ka_reduce(S x, S none) {
  x = ka_warp_reduce<OP, (T < 32 ? T : 32)>(x);
  if constexpr (T > 32) {
    __shared__ S part[32];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    constexpr unsigned warps = T > 32 ? T / 32 : 1;
    x = threadIdx.x % 32 < warps ? part[threadIdx.x % 32] : none;
    x = ka_warp_reduce<OP>(x);
  }
  if (C > 1) {
    __shared__ __align__(16) S slot[2];
    if (threadIdx.x == 0) slot[0] = x;
    ka_cluster_barrier();
    x = threadIdx.x % 32 < C ? ka_remote(slot, threadIdx.x % 32) : none;
    x = ka_warp_reduce<OP>(x);
  }
  return x;
}
// Over the TY threads of a column group; thread = ty·TX + tx holds V columns.
template <int ID, int TX, int TY, int V, class OP, class S> KA_FN void ka_columns_reduce(S (&x)[V]) {
  // Threads of a warp that share columns join theirs first.
  constexpr int LANES = TX < 32 ? 32 / TX : 1, WARPS = TY / LANES;
#pragma unroll
  for (int mask = TX; mask < 32; mask <<= 1)
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = OP::join(x[k], ka_across(x[k], mask));
  if (WARPS == 1) return;
  __shared__ S part[WARPS][TX * V];
  const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
  if (ty % LANES == 0) {
#pragma unroll
    for (int k = 0; k < V; ++k) part[ty / LANES][k * TX + tx] = x[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < V; ++k) {
    x[k] = part[0][k * TX + tx];
#pragma unroll
    for (int y = 1; y < WARPS; ++y) x[k] = OP::join(x[k], part[y][k * TX + tx]);
  }
}

// ---- Teams: blocks that join partial results in memory. `arrived` counts those that left theirs.
KA_FN void ka_team_arrive(int32_t* arrived) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" :: "l"(arrived) : "memory");
}
// Waits until `team` blocks have arrived, ten milliseconds at least and not for ever: false where some have not. They may
// not be running at all, and the caller must do without them. All threads of the block come here.
KA_FN bool ka_team_wait(const int32_t* arrived, int team) {
  bool all = false;
  if (threadIdx.x == 0) {
    for (int n = 0; n < 1 << 14 && !all; ++n) {
      int32_t count;
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(count) : "l"(arrived) : "memory");
      all = count >= team;
      if (!all) __nanosleep(64);
    }
  }
  return __syncthreads_or(all) != 0;
}
// What another block may have written during this launch: past the L1 cache.
template <class T> KA_FN T ka_fresh(const T* p) { return *const_cast<const volatile T*>(p); }

// ---- Scans. v[n][k] is element (n·T + thread)·V + k of a tile; N·T ≤ 1024. Partial results of a warp are in S, what
// comes before a warp is in double (int64_t for integers), so that rows of any length keep their accuracy.
KA_FN float ka_before(float x, int by) { return __shfl_up_sync(0xffffffffu, x, by); }
KA_FN double ka_before(double x, int by) { return __shfl_up_sync(0xffffffffu, x, by); }
KA_FN int64_t ka_before(int64_t x, int by) { return (int64_t)__shfl_up_sync(0xffffffffu, (long long)x, by); }
template <class OP, class S> KA_FN S ka_warp_scan(S x) {
#pragma unroll
  for (int by = 1; by < 32; by <<= 1) {
    const S below = ka_before(x, by);
    if (threadIdx.x % 32 >= by) x = OP::join(below, x);
  }
  return x;
}
KA_FN float ka_on_top(ka_sum, double before, float x) {
  const float high = (float)before, low = (float)(before - (double)high);
  return high + (low + x);
}
template <class OP, class B, class S> KA_FN S ka_on_top(OP, B before, S x) { return (S)OP::join(before, (B)x); }
template <int ID, int T, int N, int V, class OP, class S, class B>
KA_FN void ka_block_scan(S (&v)[N][V], B& carry, S none, bool exclusive, int parity) {
  constexpr int warps = T / 32;
  __shared__ B part[2][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  S left[N];
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int k = 1; k < V; ++k) v[n][k] = OP::join(v[n][k - 1], v[n][k]);
    const S upto = ka_warp_scan<OP>(v[n][V - 1]);
    left[n] = ka_before(upto, 1);
    if (lane == 0) left[n] = none;
    if (lane == 31) part[parity][n * warps + warp] = (B)upto;
  }
  __syncthreads();
  const B sums = ka_warp_scan<OP>(lane < N * warps ? part[parity][lane] : (B)none);
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const int at = n * warps + warp;
    const B below = at == 0 ? carry : OP::join(carry, (B)__shfl_sync(0xffffffffu, sums, at == 0 ? 0 : at - 1));
#pragma unroll
    for (int k = V - 1; k >= 0; --k) {
      const S here = exclusive ? (k == 0 ? left[n] : OP::join(left[n], v[n][k == 0 ? 0 : k - 1])) : OP::join(left[n], v[n][k]);
      v[n][k] = ka_on_top(OP(), below, here);
    }
  }
  carry = OP::join(carry, (B)__shfl_sync(0xffffffffu, sums, N * warps - 1));
}
