// Reductions over a warp and over a block; every thread gets the result, and the order is always the same.
//
//   const float total = ka::block_reduce<256, ka::sum>(mine);    // a block of 256 threads, all of them
//   float two[2] = {x, x * x};
//   ka::block_reduce<256, ka::sum>(two);                          // several values, the same two barriers
//
// Operators: sum, prod, max, min (a NaN wins), and chan (welford.cuh), rescale (softmax.cuh) for their structs.
// Any value of whole 4-byte words goes: float, double, int, int64_t, a struct of them. THREADS is a multiple of 32, or 1:
// each thread for itself.
#pragma once
#include <string.h>
#include "ka/vec.cuh"

namespace ka {

using sum = ka_sum;
using prod = ka_prod;
using max = ka_top;
using min = ka_bottom;

template <class OP, class S> struct neutral {
  KA_FN S value() { return S::none(); }
};
template <> struct neutral<ka_top, int64_t> {
  KA_FN int64_t value() { return INT64_MIN; }
};
template <class S> struct neutral<ka_sum, S> {
  KA_FN S value() { return S(0); }
};
template <class S> struct neutral<ka_prod, S> {
  KA_FN S value() { return S(1); }
};
template <class S> struct neutral<ka_top, S> {
  KA_FN S value() { return S(-INFINITY); }
};
template <class S> struct neutral<ka_bottom, S> {
  KA_FN S value() { return S(INFINITY); }
};

template <class S> KA_FN S across(S x, int mask) {
  static_assert(sizeof(S) % 4 == 0, "values of whole words");
  int words[sizeof(S) / 4];
  memcpy(words, &x, sizeof(S));
#pragma unroll
  for (int w = 0; w < (int)(sizeof(S) / 4); ++w) words[w] = __shfl_xor_sync(0xffffffffu, words[w], mask);
  memcpy(&x, words, sizeof(S));
  return x;
}
// Over groups of W neighbouring lanes (a power of two). All 32 lanes must be here.
template <class OP, int W = 32, class S> KA_FN S warp_reduce(S x) {
#pragma unroll
  for (int mask = W / 2; mask > 0; mask >>= 1) x = OP::join(x, across(x, mask));
  return x;
}
template <int THREADS, class OP, class S, int K> KA_FN void block_reduce(S (&x)[K]) {
  static_assert(THREADS == 1 || (THREADS % 32 == 0 && THREADS <= 1024), "whole warps, at most 32 of them");
  if constexpr (THREADS > 1) {
#pragma unroll
    for (int j = 0; j < K; ++j) x[j] = warp_reduce<OP>(x[j]);
  }
  if constexpr (THREADS > 32) {
    __shared__ S part[K][32];
    const int lane = threadIdx.x % 32;
    __syncthreads();  // what an earlier call left here has been read
#pragma unroll
    for (int j = 0; j < K; ++j)
      if (lane == 0) part[j][threadIdx.x / 32] = x[j];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < K; ++j)
      x[j] = warp_reduce<OP>(lane < THREADS / 32 ? part[j][lane] : neutral<OP, S>::value());
  }
}
template <int THREADS, class OP, class S> KA_FN S block_reduce(S x) {
  S one[1] = {x};
  block_reduce<THREADS, OP>(one);
  return one[0];
}

// Over dimension n of [n][inner], from `column` on: TX·TY threads, thread = ty·TX + tx, have TX·V columns. f(value) comes
// before; y(column, count, totals) is called once for every V columns. A block for each outer index and TX·V columns.
template <int TX, int TY, int V, class OP, class F, class T, class Y>
KA_FN void reduce_columns(const T* p, int n, int64_t inner, int64_t column, F f, Y y) {
  __shared__ float part[TY][TX * V];
  const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
  const int64_t c = column + tx * V;
  float total[V], x[V];
#pragma unroll
  for (int k = 0; k < V; ++k) total[k] = neutral<OP, float>::value();
  const T* from = p + ty * inner + c;
  if (c + V <= inner && inner % V == 0 && aligned<V>(p + c)) {
#pragma unroll 4
    for (int r = ty; r < n; r += TY, from += TY * inner) {
      load<V>(x, from);
#pragma unroll
      for (int k = 0; k < V; ++k) total[k] = OP::join(total[k], f(x[k]));
    }
  } else {
    for (int r = ty; r < n; r += TY, from += TY * inner) {
#pragma unroll
      for (int k = 0; k < V; ++k)
        if (c + k < inner) total[k] = OP::join(total[k], f((float)ka_get(from[k])));
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < V; ++k) part[ty][k * TX + tx] = total[k];
  __syncthreads();
  if (ty != 0) return;
#pragma unroll
  for (int k = 0; k < V; ++k)
    for (int other = 1; other < TY; ++other) total[k] = OP::join(total[k], part[other][k * TX + tx]);
  if (c < inner) y(c, inner - c < V ? (int)(inner - c) : V, total);
}

}  // namespace ka
