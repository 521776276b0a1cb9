// Vectors of V neighbours: up to 16 bytes an instruction, converted to float (or double, int64_t) on the way.
//
//   float x[4];
//   ka::load<4>(x, a.x + e);                    // a.x + e is aligned to four elements
//   ka::load_piece<4>(x, a.x + e, a.n - e);     // any alignment, the first a.n - e of four, zeros behind them
//   ka::store_piece<4>(a.out + e, x, a.n - e);
//
// Types: float, double, __nv_bfloat16, __half, bool and integers. Half types need their header (plan.h has it) before
// this one. V·sizeof(T) is 16 for whole lines: `ka::lanes<T>`. Hint 1: touched once, do not keep it in the cache.
#pragma once
#include <utility>
#include "ka_cuda.cuh"

namespace ka {

template <class T> constexpr int lanes = 16 / sizeof(T);

template <int V, class T> KA_FN bool aligned(const T* p) {
  constexpr unsigned bytes = V * sizeof(T) < 16 ? V * sizeof(T) : 16;
  return (reinterpret_cast<uintptr_t>(p) & (bytes - 1)) == 0;
}
template <int V, int H = 0, class C, class T> KA_FN void load(C (&out)[V], const T* p) {
  T raw[V];
  ka_load<V, H>(raw, p);
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = (C)ka_get(raw[k]);
}
template <int V, int H = 0, class C, class T> KA_FN void store(T* p, const C (&in)[V]) {
  T raw[V];
#pragma unroll
  for (int k = 0; k < V; ++k) ka_put(raw[k], in[k]);
  ka_store<V, H>(p, raw);
}
// The first `count` of V elements (none where it is negative); the others read as `fill` and are not written.
template <int V, int H = 0, class C, class T> KA_FN void load_piece(C (&out)[V], const T* p, int64_t count, C fill = C()) {
  if (count >= V && aligned<V>(p)) return load<V, H>(out, p);
#pragma unroll
  for (int k = 0; k < V; ++k) out[k] = k < count ? (C)ka_get(p[k]) : fill;
}
template <int V, int H = 0, class C, class T> KA_FN void store_piece(T* p, const C (&in)[V], int64_t count) {
  if (count >= V && aligned<V>(p)) return store<V, H>(p, in);
#pragma unroll
  for (int k = 0; k < V; ++k)
    if (k < count) ka_put(p[k], in[k]);
}

// f(x[0][k], x[1][k], …) for the skeletons: one argument an operand.
template <class F, class C, int N, int V, std::size_t... J>
KA_FN auto call(F& f, const C (&x)[N][V], int k, std::index_sequence<J...>) {
  return f(x[J][k]...);
}

}  // namespace ka
