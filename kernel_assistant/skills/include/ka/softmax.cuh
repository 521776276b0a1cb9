// Online softmax: maximum and Σ exp(x − maximum) in one pass over the row, however long.
//
//   ka::softmax_row<512, 4>(a.cols, [=](float x) { return x * scale; }, a.out0 + row, a.x0 + row);   // a block a row
//
// `ka::online<float>` is the state for kernels of your own: add(x) for a vector, ka::block_online<THREADS> to join.
// Rows that fit in registers (rows.cuh) are read once; these here are read twice, the second time from the cache where
// it holds the rows in flight.
#pragma once
#include "ka/rows.cuh"

namespace ka {

using rescale = ka_rescale;
template <class C> using online = ka_exponents<C>;

template <int THREADS, class C> KA_FN online<C> block_online(const online<C>& mine) {
  return block_reduce<THREADS, rescale>(mine);
}
// top and total of f(in[e], …) over a row of n, in every thread.
template <int THREADS, int V, class C = float, class F, class... IN>
KA_FN online<C> online_row(int n, F f, const IN&... in) {
  online<C> mine = online<C>::none();
  sweep<THREADS, V>(n, [&](int e, int count) {
    C x[sizeof...(IN)][V], y[V];
    int at = 0;
    (bring<V>(x[at++], in, e, count), ...);
#pragma unroll
    for (int k = 0; k < V; ++k)
      y[k] = k < count ? (C)call(f, x, k, std::make_index_sequence<sizeof...(IN)>()) : C(-INFINITY);
    mine.add(y);
  });
  return block_online<THREADS>(mine);
}
template <int THREADS, int V, class C = float, class F, class T, class... IN>
KA_FN void softmax_row(int n, F f, T* out, const IN*... in) {
  const online<C> all = online_row<THREADS, V, C>(n, f, in...);
  const C share = C(1) / all.total;
  map_row<THREADS, V, C>(n, [&](auto... x) { return ka_exp(f(x...) - all.top) * share; }, out, in...);
}
template <int THREADS, int V, class C = float, class F, class T, class... IN>
KA_FN void log_softmax_row(int n, F f, T* out, const IN*... in) {
  const online<C> all = online_row<THREADS, V, C>(n, f, in...);
  const C shift = ka_log(all.total);
  map_row<THREADS, V, C>(n, [&](auto... x) { return (f(x...) - all.top) - shift; }, out, in...);
}

}  // namespace ka
