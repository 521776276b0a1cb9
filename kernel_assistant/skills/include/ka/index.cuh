// out[i][j]… = f(i, j, …): for what stands elsewhere in the input (permuted, rolled, padded, joined, gathered).
//
//   ka::fill<4>(a.out0, [=](int64_t b, int64_t i, int64_t j) { return ka_get(a.x0[(b * 3 + j) * 5 + i]); }, a.b, 5, 3);
//                                                    // plan: grid cdiv(b · 15, 256 · 4), block 256
//
// A thread has I results a block apart, each of V neighbours: V = 2 writes words of a half type.
// `ka::at(i, n)`: the position that an index means; a negative one counts from the end, one outside is moved inside.
// `ka::inside(i, n)`: whether there is one. `ka::mirror(i, n)`, `ka::around(i, n)`: where a padded one is read instead.
#pragma once
#include "ka/vec.cuh"
#include "ka/places.h"

namespace ka {

template <class F, int R, std::size_t... J> KA_FN auto value_at(F& f, const int64_t (&at)[R], std::index_sequence<J...>) {
  return f(at[J]...);
}
// f at element e of a tensor of these sizes.
template <class F, class... N> KA_FN auto element(F& f, int64_t e, N... sizes) {
  constexpr int R = sizeof...(N);
  const int64_t size[R] = {sizes...};
  int64_t at[R];
#pragma unroll
  for (int d = R - 1; d > 0; --d) {
    const int64_t above = e >> 32 ? e / size[d] : (uint32_t)e / (uint32_t)size[d];
    at[d] = e - above * size[d];
    e = above;
  }
  at[0] = e;
  return value_at(f, at, std::make_index_sequence<R>());
}
template <int I, int V = 1, class T, class F, class... N> KA_FN void fill(T* out, F f, N... sizes) {
  const int64_t n = ((int64_t)1 * ... * sizes), step = (int64_t)blockDim.x * V;
  const int64_t first = blockIdx.x * step * I + threadIdx.x * V;
  decltype(element(f, 0, sizes...)) y[I][V];
  if (first + (I - 1) * step + V <= n) {
    // All of them exist: all loads are under way before the first is stored.
#pragma unroll
    for (int i = 0; i < I; ++i)
#pragma unroll
      for (int k = 0; k < V; ++k) y[i][k] = element(f, first + i * step + k, sizes...);
#pragma unroll
    for (int i = 0; i < I; ++i) store<V>(out + first + i * step, y[i]);
    return;
  }
  for (int i = 0; i < I; ++i)
    for (int k = 0; k < V; ++k)
      if (first + i * step + k < n) ka_put(out[first + i * step + k], element(f, first + i * step + k, sizes...));
}

}  // namespace ka
