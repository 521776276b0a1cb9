// Rows in registers: THREADS threads hold a row of up to THREADS·V·ITEMS elements, read once and written once.
//
//   extern "C" __global__ void __launch_bounds__(256) layer_norm(const __grid_constant__ layer_norm_args a) {
//     ka::row<256, 4, 4> x;                                    // up to 4096 columns; plan: grid rows, block 256
//     x.load(a.x0 + blockIdx.x * a.cols, a.cols);
//     const auto m = x.moments();
//     const float scale = rsqrtf(ka::variance(m) + 1e-5f);
//     x.store(a.out0 + blockIdx.x * a.cols, [=](float v, float w, float b) { return (v - m.mean) * scale * w + b; },
//             a.p0, a.p1);                                     // weights: one element a column
//   }
//
// `ka::row_of<256, 4, D0>` is the row with as many ITEMS as D0 columns take, a constant: nothing to divide, always whole.
// THREADS = 32 is a warp a row: the block may have several (row = blockIdx.x · warps + threadIdx.x / 32), and a warp
// beyond the last row returns at once. Rows of odd length or place are read element by element: the same result, slower.
// Longer rows: `ka::fold_row` and `ka::map_row` read them again, from the cache where they fit. `x.place(f)` and
// `ka::place_row` give the column of the largest f, the first of them. An operand is a pointer to n elements or
// `ka::steps(p, inner)`: p[column / inner], the weights of channels in a row of channels with `inner` pixels each.
// THREADS = 1 is a thread a row, for rows that lie across memory: operands and results are `ka::down(p, step)`, p[column ·
// step], and neighbouring threads have neighbouring rows (row = blockIdx.x · T + threadIdx.x).
#pragma once
#include "ka/vec.cuh"
#include "ka/welford.cuh"

namespace ka {

template <int THREADS> KA_FN int place() { return THREADS == 1 ? 0 : THREADS == 32 ? threadIdx.x % 32 : threadIdx.x; }

template <class T> struct steps_of {
  const T* p;
  int inner;
};
template <class T> KA_FN steps_of<T> steps(const T* p, int64_t inner) { return {p, (int)inner}; }
template <class T> struct down_of {
  T* p;
  int64_t step;
};
template <class T> KA_FN down_of<T> down(T* p, int64_t step) { return {p, step}; }
// V operands of one vector that begins at column e, and V results.
template <int V, class C, class T> KA_FN void bring(C (&x)[V], const T* p, int e, int count) {
  load_piece<V>(x, p + e, count);
}
template <int V, class C, class T> KA_FN void bring(C (&x)[V], const down_of<T>& s, int e, int count) {
#pragma unroll
  for (int k = 0; k < V; ++k) x[k] = k < count ? (C)ka_get(s.p[(e + k) * s.step]) : C();
}
template <int V, class C, class T> KA_FN void put(T* p, const C (&y)[V], int e, int count) { store_piece<V>(p + e, y, count); }
template <int V, class C, class T> KA_FN void put(const down_of<T>& s, const C (&y)[V], int e, int count) {
#pragma unroll
  for (int k = 0; k < V; ++k)
    if (k < count) ka_put(s.p[(e + k) * s.step], y[k]);
}
template <int V, class C, class T> KA_FN void bring(C (&x)[V], const steps_of<T>& s, int e, int count) {
  const int at = (int)((uint32_t)e / (uint32_t)s.inner), left = s.inner - (e - at * s.inner);
  const C here = count > 0 ? (C)ka_get(s.p[at]) : C();
#pragma unroll
  for (int k = 0; k < V; ++k) x[k] = k < left || k >= count ? here : (C)ka_get(s.p[(uint32_t)(e + k) / (uint32_t)s.inner]);
}

template <int THREADS, int V, int ITEMS, class C = float> struct row {
  C v[ITEMS][V];
  int n;
  bool wide;  // a thread's V elements are neighbours; else they are THREADS apart

  // Column of element k of vector i.
  __device__ __forceinline__ int column(int i, int k) const {
    return wide ? (i * THREADS + ka::place<THREADS>()) * V + k : (i * V + k) * THREADS + ka::place<THREADS>();
  }
  // What lies behind the row's end holds `fill`: 0, or −INFINITY before a maximum.
  template <class T> __device__ __forceinline__ void load(const T* p, int64_t columns, C fill = C()) {
    n = (int)columns;
    wide = aligned<V>(p);
    gather(v, p, fill);
  }
  template <class T> __device__ __forceinline__ void load(const down_of<T>& s, int64_t columns, C fill = C()) {
    n = (int)columns;
    wide = true;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) piece(v[i], i, s, fill);
  }
  // Elements of p in the places of this row.
  template <class T> __device__ __forceinline__ void gather(C (&to)[ITEMS][V], const T* p, C fill = C()) const {
    if (wide && aligned<V>(p) && n - column(ITEMS - 1, 0) >= V) {
      // All of them exist: all loads are under way before the first is converted.
      T raw[ITEMS][V];
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) ka_load<V, 0>(raw[i], p + column(i, 0));
#pragma unroll
      for (int i = 0; i < ITEMS; ++i)
#pragma unroll
        for (int k = 0; k < V; ++k) to[i][k] = (C)ka_get(raw[i][k]);
      return;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) piece(to[i], i, p, fill);
  }
  // v = f(v, p[column], …): other rows or weights, in the places of this row.
  template <class F, class... IN> __device__ __forceinline__ void map(F f, const IN&... in) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) compute(v[i], i, f, in...);
  }
  template <class OP, class F, class... IN> __device__ __forceinline__ C fold(F f, const IN&... in) const {
    C total = neutral<OP, C>::value();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      C y[V];
      compute(y, i, f, in...);
      // Asked once a vector: comparing every column would cost more than the sum.
      const int left = n - column(i, 0);
      if (wide ? left >= V : left > (V - 1) * THREADS) {
#pragma unroll
        for (int k = 0; k < V; ++k) total = OP::join(total, y[k]);
      } else {
#pragma unroll
        for (int k = 0; k < V; ++k)
          if ((wide ? k : k * THREADS) < left) total = OP::join(total, y[k]);
      }
    }
    return block_reduce<THREADS, OP>(total);
  }
  __device__ __forceinline__ C sum() const {
    return fold<ka::sum>([](C x) { return x; });
  }
  __device__ __forceinline__ C max() const {
    return fold<ka::max>([](C x) { return x; });
  }
  __device__ __forceinline__ C min() const {
    return fold<ka::min>([](C x) { return x; });
  }
  // Column of the largest f(v): the first of them, or of the NaNs.
  template <class F> __device__ __forceinline__ int64_t place(F f) const {
    int64_t key = INT64_MIN;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
#pragma unroll
      for (int k = 0; k < V; ++k)
        if (column(i, k) < n) key = ka_max(key, ka_key((C)f(v[i][k]), (int64_t)column(i, k)));
    return ka_key_place(block_reduce<THREADS, ka::max>(key));
  }
  // The row is in registers, so the mean comes first and the squares are taken around it.
  __device__ __forceinline__ ka::moments<C> moments() const {
    const C mean = sum() / C(n);
    return {C(n), mean, fold<ka::sum>([=](C x) { return (x - mean) * (x - mean); })};
  }
  // p[column] = f(v, in[column], …).
  template <class T, class F, class... IN> __device__ __forceinline__ void store(T* p, F f, const IN&... in) const {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      C y[V];
      compute(y, i, f, in...);
      const int left = n - column(i, 0);
      if (wide) {
        store_piece<V>(p + column(i, 0), y, left);
      } else {
#pragma unroll
        for (int k = 0; k < V; ++k)
          if (k * THREADS < left) ka_put(p[column(i, 0) + k * THREADS], y[k]);
      }
    }
  }
  template <class T, class F, class... IN>
  __device__ __forceinline__ void store(const down_of<T>& s, F f, const IN&... in) const {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      C y[V];
      compute(y, i, f, in...);
      put<V>(s, y, column(i, 0), n - column(i, 0));
    }
  }
  template <class P> __device__ __forceinline__ void store(P p) const {
    store(p, [](C x) { return x; });
  }

  template <class F, class... IN> __device__ __forceinline__ void compute(C (&y)[V], int i, F f, const IN&... in) const {
    C x[sizeof...(IN) + 1][V];
    int at = 0;
    (piece(x[at++], i, in, C()), ...);
#pragma unroll
    for (int k = 0; k < V; ++k) x[sizeof...(IN)][k] = v[i][k];
#pragma unroll
    for (int k = 0; k < V; ++k) y[k] = joined(f, x, k, std::make_index_sequence<sizeof...(IN)>());
  }
  template <class F, int N, std::size_t... J>
  __device__ __forceinline__ C joined(F& f, const C (&x)[N][V], int k, std::index_sequence<J...>) const {
    return f(x[N - 1][k], x[J][k]...);
  }
  template <class T> __device__ __forceinline__ void piece(C (&x)[V], int i, const T* p, C fill) const {
    const int left = n - column(i, 0);
    if (wide) return load_piece<V>(x, p + column(i, 0), left, fill);
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = k * THREADS < left ? (C)ka_get(p[column(i, 0) + k * THREADS]) : fill;
  }
  template <class T> __device__ __forceinline__ void piece(C (&x)[V], int i, const down_of<T>& s, C fill) const {
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = column(i, k) < n ? (C)ka_get(s.p[column(i, k) * s.step]) : fill;
  }
  template <class T> __device__ __forceinline__ void piece(C (&x)[V], int i, const steps_of<T>& s, C fill) const {
    if (wide) return bring<V>(x, s, column(i, 0), n - column(i, 0));
#pragma unroll
    for (int k = 0; k < V; ++k)
      x[k] = column(i, k) < n ? (C)ka_get(s.p[(uint32_t)column(i, k) / (uint32_t)s.inner]) : fill;
  }
};

// Vectors that each thread has of a row. More registers than this would go to memory, and compile for minutes.
template <int THREADS, int V, int64_t COLUMNS> KA_FN constexpr int items_of() {
  constexpr int64_t items = (COLUMNS + THREADS * V - 1) / (THREADS * V);
  static_assert(items * V <= 128, "the row is too long for its threads: more of them, or ka::fold_row and ka::map_row");
  return items;
}
template <int THREADS, int V, int64_t COLUMNS, class C = float>
using row_of = row<THREADS, V, items_of<THREADS, V, COLUMNS>(), C>;

// f(e, count) for every vector of a row of n that this thread has; `count` is V, as a constant, but at the row's end.
template <int THREADS, int V, class F> KA_FN void sweep(int n, F f) {
  int e = place<THREADS>() * V;
#pragma unroll 2
  for (; e + V <= n; e += THREADS * V) f(e, V);
  if (e < n) f(e, n - e);
}
// OP over f(in[e], …) of a whole row, in every thread.
template <int THREADS, int V, class OP, class C = float, class F, class... IN>
KA_FN C fold_row(int n, F f, const IN&... in) {
  C total[V];
#pragma unroll
  for (int k = 0; k < V; ++k) total[k] = neutral<OP, C>::value();
  sweep<THREADS, V>(n, [&](int e, int count) {
    C x[sizeof...(IN)][V];
    int at = 0;
    (bring<V>(x[at++], in, e, count), ...);
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (k < count) total[k] = OP::join(total[k], (C)call(f, x, k, std::make_index_sequence<sizeof...(IN)>()));
  });
#pragma unroll
  for (int k = 1; k < V; ++k) total[0] = OP::join(total[0], total[k]);
  return block_reduce<THREADS, OP>(total[0]);
}
template <int THREADS, int V, class C = float, class F, class OUT, class... IN>
KA_FN void map_row(int n, F f, OUT out, const IN&... in) {
  sweep<THREADS, V>(n, [&](int e, int count) {
    C x[sizeof...(IN)][V], y[V];
    int at = 0;
    (bring<V>(x[at++], in, e, count), ...);
#pragma unroll
    for (int k = 0; k < V; ++k) y[k] = call(f, x, k, std::make_index_sequence<sizeof...(IN)>());
    put<V>(out, y, e, count);
  });
}
template <int THREADS, int V, class C = float, class F, class T, class... IN>
KA_FN moments<C> row_moments(int n, F f, const T& first, const IN&... in) {
  sums<C> mine;
  sweep<THREADS, V>(n, [&](int e, int count) {
    C x[sizeof...(IN) + 1][V];
    int at = 0;
    bring<V>(x[at++], first, e, count);
    (bring<V>(x[at++], in, e, count), ...);
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (k < count) mine.add(call(f, x, k, std::make_index_sequence<sizeof...(IN) + 1>()));
  });
  return block_moments<THREADS>(mine);
}
template <int THREADS, int V, class C = float, class T> KA_FN moments<C> row_moments(int n, const T* in) {
  return row_moments<THREADS, V, C>(n, [](C x) { return x; }, in);
}
// Column of the largest f(in[column], …): the first of them, or of the NaNs.
template <int THREADS, int V, class C = float, class F, class... IN> KA_FN int64_t place_row(int n, F f, const IN&... in) {
  int64_t key = INT64_MIN;
  sweep<THREADS, V>(n, [&](int e, int count) {
    C x[sizeof...(IN)][V];
    int at = 0;
    (bring<V>(x[at++], in, e, count), ...);
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (k < count)
        key = ka_max(key, ka_key((C)call(f, x, k, std::make_index_sequence<sizeof...(IN)>()), (int64_t)(e + k)));
  });
  return ka_key_place(block_reduce<THREADS, ka::max>(key));
}

}  // namespace ka
