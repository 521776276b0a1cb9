// Over a dimension that is not the last, of [outer][n][inner]: reductions to [outer][inner], and running sums.
//
//   ka::fold_columns<32, 8, 4, ka::sum>(n, inner, [](float x) { return x; }, [=](float s) { return s / n; }, a.out0, a.x0);
//                                                    // plan: grid outer · cdiv(inner, 32 · 4), block 32 · 8
//   ka::scan_columns<4, ka::sum>(outer, n, inner, f, g, a.out0, a.x0);
//                                                    // plan: grid cdiv(outer · cdiv(inner, 4), 256), block 256
//
// The first function is of the inputs, the second of each result. X·Y threads have X·V columns, each a share of n. The
// running sums and products of scan_columns may be EXCLUSIVE or go BACK, as in scan.cuh.
// Fewer columns than threads: `ka::scan_tall<32, 16, 1, ka::sum>(n, inner, f, g, a.out0, a.x0)` has Y threads below each
// other, each with a share of n that it reads twice; grid and block as for `fold_columns`.
// Few columns: `ka::fold_chunks` first, f of each of `parts` pieces of n into a scratch buffer [outer, parts, inner]
// (grid outer · parts · cdiv(inner, X·V)), then `ka::fold_columns` over `parts`.
#pragma once
#include "ka/reduce.cuh"

namespace ka {

// Totals of rows from … to of V columns, in the threads with ty = 0.
template <int X, int Y, int V, class OP, class F, class... IN>
KA_FN void column_totals(float (&total)[V], int64_t from, int64_t to, int64_t inner, int64_t c, F f, const IN*... in) {
  __shared__ float part[Y][X * V];
  const int tx = threadIdx.x % X, ty = threadIdx.x / X;
#pragma unroll
  for (int k = 0; k < V; ++k) total[k] = neutral<OP, float>::value();
  if (c + V <= inner && inner % V == 0 && (aligned<V>(in + c) && ...)) {
#pragma unroll 4
    for (int64_t r = from + ty; r < to; r += Y) {
      float x[sizeof...(IN)][V];
      int at = 0;
      (load<V>(x[at++], in + r * inner + c), ...);
#pragma unroll
      for (int k = 0; k < V; ++k)
        total[k] = OP::join(total[k], (float)call(f, x, k, std::make_index_sequence<sizeof...(IN)>()));
    }
  } else {
    for (int64_t r = from + ty; r < to; r += Y)
#pragma unroll
      for (int k = 0; k < V; ++k)
        if (c + k < inner) total[k] = OP::join(total[k], (float)f((float)ka_get(in[r * inner + c + k])...));
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < V; ++k) part[ty][k * X + tx] = total[k];
  __syncthreads();
  if (ty != 0) return;
#pragma unroll
  for (int k = 0; k < V; ++k)
    for (int other = 1; other < Y; ++other) total[k] = OP::join(total[k], part[other][k * X + tx]);
}
template <int X, int V> KA_FN int64_t column_of(int64_t inner, int64_t& above) {
  const int64_t tiles = (inner + X * V - 1) / (X * V);
  above = blockIdx.x / tiles;
  return (blockIdx.x % tiles * X + threadIdx.x % X) * V;
}

template <int X, int Y, int V, class OP, class F, class G, class T, class... IN>
KA_FN void fold_columns(int64_t n, int64_t inner, F f, G g, T* out, const IN*... in) {
  int64_t above;
  const int64_t c = column_of<X, V>(inner, above);
  float total[V];
  column_totals<X, Y, V, OP>(total, 0, n, inner, c, f, (in + above * n * inner)...);
  if (threadIdx.x >= X) return;
#pragma unroll
  for (int k = 0; k < V; ++k) total[k] = (float)g(total[k]);
  store_piece<V>(out + above * inner + c, total, inner - c);
}
template <int X, int Y, int V, class OP, class F, class T, class... IN>
KA_FN void fold_chunks(int64_t n, int64_t inner, int64_t parts, F f, T* out, const IN*... in) {
  int64_t above;
  const int64_t c = column_of<X, V>(inner, above), outer = above / parts, part = above % parts;
  const int64_t length = (n + parts - 1) / parts, from = part * length < n ? part * length : n;
  float total[V];
  column_totals<X, Y, V, OP>(total, from, from + length < n ? from + length : n, inner, c, f,
                             (in + outer * n * inner)...);
  if (threadIdx.x < X) store_piece<V>(out + above * inner + c, total, inner - c);
}

// A thread goes down V columns, eight rows on their way at a time; the carry is double.
template <int V, class OP, bool EXCLUSIVE = false, bool BACK = false, class F, class G, class T, class... IN>
KA_FN void scan_columns(int64_t outer, int64_t n, int64_t inner, F f, G g, T* out, const IN*... in) {
  constexpr int ahead = 8;
  const int64_t groups = (inner + V - 1) / V, mine = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (mine >= outer * groups) return;
  const int64_t c = mine % groups * V, corner = mine / groups * n * inner + c;
  double carry[V];
#pragma unroll
  for (int k = 0; k < V; ++k) carry[k] = neutral<OP, double>::value();
  for (int64_t first = 0; first < n; first += ahead) {
    float x[ahead][sizeof...(IN)][V];
#pragma unroll
    for (int r = 0; r < ahead; ++r) {
      const int64_t line = corner + (BACK ? n - 1 - first - r : first + r) * inner;
      int at = 0;
      (load_piece<V>(x[r][at++], in + line, first + r < n ? inner - c : 0), ...);
    }
#pragma unroll
    for (int r = 0; r < ahead; ++r) {
      if (first + r >= n) break;
      float y[V];
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const double next =
            OP::join(carry[k], (double)call(f, x[r], k, std::make_index_sequence<sizeof...(IN)>()));
        y[k] = (float)g((float)(EXCLUSIVE ? carry[k] : next));
        carry[k] = next;
      }
      store_piece<V>(out + corner + (BACK ? n - 1 - first - r : first + r) * inner, y, inner - c);
    }
  }
}

template <int X, int Y, int V, class OP, bool EXCLUSIVE = false, bool BACK = false, class F, class G, class T, class... IN>
KA_FN void scan_tall(int64_t n, int64_t inner, F f, G g, T* out, const IN*... in) {
  __shared__ double part[Y][X * V];
  int64_t above;
  const int64_t c = column_of<X, V>(inner, above), corner = above * n * inner + c;
  const int tx = threadIdx.x % X, ty = threadIdx.x / X;
  const int64_t length = (n + Y - 1) / Y, from = ty * length < n ? ty * length : n;
  const int64_t to = from + length < n ? from + length : n;
  const auto bring = [&](int64_t r, float (&x)[V]) {
    float y[sizeof...(IN)][V];
    int at = 0;
    (load_piece<V>(y[at++], in + corner + (BACK ? n - 1 - r : r) * inner, inner - c), ...);
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = (float)call(f, y, k, std::make_index_sequence<sizeof...(IN)>());
  };
  double carry[V];
#pragma unroll
  for (int k = 0; k < V; ++k) carry[k] = neutral<OP, double>::value();
#pragma unroll 4
  for (int64_t r = from; r < to; ++r) {
    float x[V];
    bring(r, x);
#pragma unroll
    for (int k = 0; k < V; ++k) carry[k] = OP::join(carry[k], (double)x[k]);
  }
#pragma unroll
  for (int k = 0; k < V; ++k) part[ty][k * X + tx] = carry[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < V; ++k) {
    carry[k] = neutral<OP, double>::value();
    for (int other = 0; other < ty; ++other) carry[k] = OP::join(carry[k], part[other][k * X + tx]);
  }
  constexpr int ahead = 4;
  for (int64_t first = from; first < to; first += ahead) {
    float x[ahead][V];
#pragma unroll
    for (int r = 0; r < ahead; ++r)
      if (first + r < to) bring(first + r, x[r]);
#pragma unroll
    for (int r = 0; r < ahead; ++r) {
      if (first + r >= to) break;
      float y[V];
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const double next = OP::join(carry[k], (double)x[r][k]);
        y[k] = (float)g((float)(EXCLUSIVE ? carry[k] : next));
        carry[k] = next;
      }
      store_piece<V>(out + corner + (BACK ? n - 1 - first - r : first + r) * inner, y, inner - c);
    }
  }
}

}  // namespace ka
