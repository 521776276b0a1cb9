// Running sums and products of rows. Inside a warp they are float, what came before it is double: a row of any length
// keeps its accuracy (a plain float scan over 65,536 elements misses 1e-4), and the order is always the same.
//
//   ka::scan_row<256, 4, 4, ka::sum>(a.cols, [](float x) { return x; }, a.out0 + row, a.x0 + row);    // a block a row
//
// THREADS·N ≤ 1024; N vectors of V a thread and tile. EXCLUSIVE: each element gets what came before it. BACK: from the
// row's end to its beginning. A second function, in front of the output, is what becomes of each result; it gets the
// operands that the first does not take: `[](float x) {…}, [](float s, float y) {…}, out, x, y`.
// Few long rows: cut each into `parts` chunks, two launches. The first leaves the total of every chunk in a scratch
// buffer of doubles, `ka::chunk_total`; the second, `ka::scan_chunk`, begins each chunk with the totals before it. Both
// have a grid of rows · parts. (A single pass with look-back moves a third less, but its order, and so its bits, vary.)
#pragma once
#include <type_traits>
#include "ka/rows.cuh"

namespace ka {

template <class OP> struct partial { typedef float type; };
template <> struct partial<ka_prod> { typedef double type; };  // the range of float is soon left

// Elements e … e+V-1 of a row of n, counted from its end where BACK.
template <int V, bool BACK, class C, class T> KA_FN void load_along(C (&x)[V], const T* row, int e, int n) {
  if constexpr (!BACK) {
    load_piece<V>(x, row + e, n - e);
  } else if (e + V <= n) {
    C turned[V];
    load_piece<V>(turned, row + (n - V - e), V);
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = turned[V - 1 - k];
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = e + k < n ? (C)ka_get(row[n - 1 - e - k]) : C();
  }
}
template <int V, bool BACK, class T> KA_FN void store_along(T* row, const float (&y)[V], int e, int n) {
  if constexpr (!BACK) {
    store_piece<V>(row + e, y, n - e);
  } else if (e + V <= n) {
    float turned[V];
#pragma unroll
    for (int k = 0; k < V; ++k) turned[k] = y[V - 1 - k];
    store_piece<V>(row + (n - V - e), turned, V);
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (e + k < n) ka_put(row[n - 1 - e - k], y[k]);
  }
}
// How many of N operands a function takes.
template <class F, std::size_t... J> KA_FN constexpr bool takes(std::index_sequence<J...>) {
  return std::is_invocable<F, decltype((void)J, 0.0f)...>::value;
}
template <class F, int N> KA_FN constexpr int arity() {
  if constexpr (N <= 1 || takes<F>(std::make_index_sequence<N>())) return N;
  else return arity<F, N - 1>();
}
template <int M, class G, int N, int V, std::size_t... J>
KA_FN auto behind(G& g, float s, const float (&x)[N][V], int k, std::index_sequence<J...>) {
  return g(s, x[M + J][k]...);
}
// g(s, y…) for the operands y behind the first M, at elements e … of the row.
template <int M, int V, bool BACK, class G, class... IN>
KA_FN void become(float (&y)[V], G& g, int e, int n, const IN*... in) {
  if constexpr (sizeof...(IN) == M) {
#pragma unroll
    for (int k = 0; k < V; ++k) y[k] = (float)g(y[k]);
  } else {
    float x[sizeof...(IN)][V];
    int at = 0;
    ((at < M ? (void)++at : load_along<V, BACK>(x[at++], in, e, n)), ...);
#pragma unroll
    for (int k = 0; k < V; ++k) y[k] = (float)behind<M>(g, y[k], x, k, std::make_index_sequence<sizeof...(IN) - M>());
  }
}
struct as_it_is {
  template <class C> __device__ __forceinline__ C operator()(C x) const { return x; }
};

template <int THREADS, int V, int N, class OP, bool EXCLUSIVE, bool BACK, class F, class G, class T, class... IN>
KA_FN void scan_from(double carry, int n, F f, G g, T* out, const IN*... in) {
  typedef typename partial<OP>::type S;
  constexpr int span = THREADS * V * N, first = arity<F, sizeof...(IN)>();
  const int mine = (int)threadIdx.x * V;
  const auto bring = [&](int tile, S (&v)[N][V]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int e = tile + i * THREADS * V + mine;
      float x[sizeof...(IN)][V];
      int at = 0;
      ((at < first ? load_along<V, BACK>(x[at++], in, e, n) : (void)0), ...);
#pragma unroll
      for (int k = 0; k < V; ++k)
        v[i][k] = e + k < n ? (S)call(f, x, k, std::make_index_sequence<first>()) : neutral<OP, S>::value();
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
      become<first, V, BACK>(y, g, e, n, in...);
      store_along<V, BACK>(out, y, e, n);
#pragma unroll
      for (int k = 0; k < V; ++k) v[i][k] = next[i][k];
    }
  }
}
template <int THREADS, int V, int N, class OP, bool EXCLUSIVE = false, bool BACK = false, class F, class T, class... IN>
KA_FN void scan_row(int64_t n, F f, T* out, const IN*... in) {
  scan_from<THREADS, V, N, OP, EXCLUSIVE, BACK>(neutral<OP, double>::value(), (int)n, f, as_it_is(), out, in...);
}
template <int THREADS, int V, int N, class OP, bool EXCLUSIVE = false, bool BACK = false, class F, class G, class T,
          class... IN, std::enable_if_t<!std::is_pointer<G>::value, int> = 0>
KA_FN void scan_row(int64_t n, F f, G g, T* out, const IN*... in) {
  scan_from<THREADS, V, N, OP, EXCLUSIVE, BACK>(neutral<OP, double>::value(), (int)n, f, g, out, in...);
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
  scan_from<THREADS, V, N, OP, EXCLUSIVE, false>(before, (int)(to - from), f, as_it_is(), out + from, (in + from)...);
}

}  // namespace ka
