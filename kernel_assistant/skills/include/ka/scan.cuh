// Running sums and products of rows. Inside a warp they are float, what came before it is double: a row of any length
// keeps its accuracy (a plain float scan over 65,536 elements misses 1e-4), and the order is always the same.
//
//   ka::scan_row<256, 4, 4, ka::add>(a.cols, [](float x) { return x; }, a.out0 + row, a.x0 + row);    // a block a row
//
// THREADS·N ≤ 1024; N vectors of V a thread and tile. EXCLUSIVE: each element gets what came before it.
// Few long rows: cut each into `parts` chunks, two launches. The first leaves the total of every chunk in a scratch
// buffer of doubles, `ka::chunk_total`; the second, `ka::scan_chunk`, begins each chunk with the totals before it. Both
// have a grid of rows · parts. (A single pass with look-back moves a third less, but its order, and so its bits, vary.)
#pragma once
#include "ka/rows.cuh"

namespace ka {

template <class OP> struct partial { typedef float type; };
template <> struct partial<ka_prod> { typedef double type; };  // the range of float is soon left

template <int THREADS, int V, int N, class OP, bool EXCLUSIVE, class F, class T, class... IN>
KA_FN void scan_from(double carry, int n, F f, T* out, const IN*... in) {
  typedef typename partial<OP>::type S;
  constexpr int span = THREADS * V * N;
  const int mine = (int)threadIdx.x * V;
  const auto bring = [&](int tile, S (&v)[N][V]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int e = tile + i * THREADS * V + mine;
      float x[sizeof...(IN)][V];
      int at = 0;
      (load_piece<V>(x[at++], in + e, n - e), ...);
#pragma unroll
      for (int k = 0; k < V; ++k)
        v[i][k] = e + k < n ? (S)call(f, x, k, std::make_index_sequence<sizeof...(IN)>()) : neutral<OP, S>::value();
    }
  };
  S v[N][V], next[N][V];
  bring(0, v);
  int parity = 0;
  __syncthreads();  // an earlier scan of this kernel shares its memory
  for (int tile = 0; tile < n; tile += span, parity ^= 1) {
    bring(tile + span, next);  // on its way while this tile is summed
    ka_block_scan<0, THREADS, N, V, OP>(v, carry, neutral<OP, S>::value(), EXCLUSIVE, parity);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int e = tile + i * THREADS * V + mine;
      float y[V];
#pragma unroll
      for (int k = 0; k < V; ++k) y[k] = (float)v[i][k];
      store_piece<V>(out + e, y, n - e);
#pragma unroll
      for (int k = 0; k < V; ++k) v[i][k] = next[i][k];
    }
  }
}
template <int THREADS, int V, int N, class OP, bool EXCLUSIVE = false, class F, class T, class... IN>
KA_FN void scan_row(int64_t n, F f, T* out, const IN*... in) {
  scan_from<THREADS, V, N, OP, EXCLUSIVE>(neutral<OP, double>::value(), (int)n, f, out, in...);
}

// Where chunk `part` of `parts` begins in a row of n: at whole vectors of 16.
KA_FN int64_t chunk_begin(int64_t n, int64_t part, int64_t parts) {
  const int64_t length = ((n + parts - 1) / parts + 15) / 16 * 16;
  return part * length < n ? part * length : n;
}
template <int THREADS, int V, class OP, class F, class... IN>
KA_FN void chunk_total(int64_t n, int64_t part, int64_t parts, F f, double* totals, const IN*... in) {
  const int64_t from = chunk_begin(n, part, parts), to = chunk_begin(n, part + 1, parts);
  const double all = fold_row<THREADS, V, OP, double>(
      (int)(to - from), [&](auto... x) { return (double)f((float)x...); }, (in + from)...);
  if (threadIdx.x == 0) totals[part] = all;
}
template <int THREADS, int V, int N, class OP, bool EXCLUSIVE = false, class F, class T, class... IN>
KA_FN void scan_chunk(int64_t n, int64_t part, int64_t parts, const double* totals, F f, T* out, const IN*... in) {
  const int64_t from = chunk_begin(n, part, parts), to = chunk_begin(n, part + 1, parts);
  const double before = fold_row<THREADS, 1, OP, double>((int)part, [](double x) { return x; }, totals);
  scan_from<THREADS, V, N, OP, EXCLUSIVE>(before, (int)(to - from), f, out + from, (in + from)...);
}

}  // namespace ka
