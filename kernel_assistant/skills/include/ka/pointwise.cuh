// out[i] = f(x[i], y[i], …) over n elements: a loop over the grid in vectors of V.
//
//   extern "C" __global__ void __launch_bounds__(256) gate(const __grid_constant__ gate_args a) {
//     ka::pointwise<4>(a.n, [](float x, float g) { return x * ka_sigmoid(g); }, a.out0, a.x0, a.x1);
//   }                                              // plan: grid cdiv(n, 1024), block 256
//
// Operands are pointers to n elements, or `ka::last(b, C)`: b[i % C], a bias along the last of the dimensions;
// `ka::middle(b, inner, C)`: b[i / inner % C], one of C channels with `inner` pixels; `ka::leading(b, inner)`: b[i / inner];
// `ka::single(s)`: s[0]; `ka::strided(p, s0, n0, s1, n1, …, sk)`: any layout, steps and sizes from the last dimension on.
// V: 4 for float, 8 for half types. Hint H = 1 where data exceed the cache. `ka::each<V>` is the bare loop.
#pragma once
#include "ka/vec.cuh"

namespace ka {

template <class T> struct all_of {
  const T* p;
  template <int V, int H, class C> __device__ __forceinline__ void get(C (&x)[V], int64_t i, int64_t count) const {
    load_piece<V, H>(x, p + i, count);
  }
};
template <class T> struct last_of {
  const T* p;
  int64_t size;
  template <int V, int H, class C> __device__ __forceinline__ void get(C (&x)[V], int64_t i, int64_t) const {
    const int64_t at = i >> 32 ? i % size : (uint32_t)i % (uint32_t)size;
    if (at + V <= size) return load_piece<V>(x, p + at, V);
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = (C)ka_get(p[(at + k) % size]);
  }
};
template <class T> struct middle_of {
  const T* p;
  int64_t inner, size;
  template <int V, int H, class C> __device__ __forceinline__ void get(C (&x)[V], int64_t i, int64_t) const {
    const bool wide = (i + V) >> 32;
    const int64_t group = wide ? i / inner : (uint32_t)i / (uint32_t)inner;
    const int64_t left = inner - (i - group * inner), at = wide ? group % size : (uint32_t)group % (uint32_t)size;
    const C here = (C)ka_get(p[at]);
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = k < left ? here : (C)ka_get(p[(i + k) / inner % size]);
  }
};
template <class T> struct leading_of {
  const T* p;
  int64_t inner;
  template <int V, int H, class C> __device__ __forceinline__ void get(C (&x)[V], int64_t i, int64_t count) const {
    const int64_t at = (i + V) >> 32 ? i / inner : (uint32_t)i / (uint32_t)inner;
    const int64_t left = inner - (i - at * inner);
    const C here = (C)ka_get(p[at]);
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = k < left || k >= count ? here : (C)ka_get(p[(i + k) / inner]);
  }
};
// Steps and sizes from the last dimension on; the size of the first is not asked for.
template <int R, class T> struct strided_of {
  const T* p;
  int64_t size[R], step[R];
  __device__ __forceinline__ int64_t place(int64_t i) const {
    int64_t at = 0;
#pragma unroll
    for (int d = 0; d < R - 1; ++d) {
      const int64_t above = (i | size[d]) >> 32 ? i / size[d] : (uint32_t)i / (uint32_t)size[d];
      at += (i - above * size[d]) * step[d];
      i = above;
    }
    return at + i * step[R - 1];
  }
  template <int V, int H, class C> __device__ __forceinline__ void get(C (&x)[V], int64_t i, int64_t count) const {
    const int64_t column = R == 1 ? i : (i | size[0]) >> 32 ? i % size[0] : (uint32_t)i % (uint32_t)size[0];
    if (step[0] == 1 && (R == 1 || column + V <= size[0])) return load_piece<V, H>(x, p + place(i), count);
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = k < count ? (C)ka_get(p[place(i + k)]) : C();
  }
};
template <class T> struct single_of {
  const T* p;
  template <int V, int H, class C> __device__ __forceinline__ void get(C (&x)[V], int64_t, int64_t) const {
    const C here = (C)ka_get(*p);
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = here;
  }
};
template <class T> KA_FN last_of<T> last(const T* p, int64_t size) { return {p, size}; }
template <class T> KA_FN middle_of<T> middle(const T* p, int64_t inner, int64_t size) { return {p, inner, size}; }
template <class T> KA_FN leading_of<T> leading(const T* p, int64_t inner) { return {p, inner}; }
template <class T, class... S> KA_FN strided_of<sizeof...(S) / 2 + 1, T> strided(const T* p, S... steps_and_sizes) {
  const int64_t all[] = {(int64_t)steps_and_sizes..., 1};
  strided_of<sizeof...(S) / 2 + 1, T> one;
  one.p = p;
#pragma unroll
  for (int d = 0; d < (int)(sizeof...(S) / 2) + 1; ++d) one.step[d] = all[2 * d], one.size[d] = all[2 * d + 1];
  return one;
}
template <class T> KA_FN single_of<T> single(const T* p) { return {p}; }
template <class T> KA_FN all_of<T> operand(T* p) { return {p}; }
template <class T> KA_FN all_of<T> operand(const T* p) { return {p}; }
template <class O> KA_FN O operand(O one) { return one; }

// f(i, count) for every vector that this thread has: it begins at i, count ≤ V elements of it exist.
template <int V, class F> KA_FN void each(int64_t n, F f) {
  const int64_t step = (int64_t)gridDim.x * blockDim.x * V;
  int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
  for (; i + V <= n; i += step) f(i, V);
  if (i < n) f(i, (int)(n - i));
}
template <int V, int H, class C, class F, class T, class... O> KA_FN void pointwise_of(int64_t n, F f, T* out, O... in) {
  each<V>(n, [&](int64_t i, int count) {
    C x[sizeof...(O) + 1][V], y[V];
    int at = 0;
    (in.template get<V, H>(x[at++], i, count), ...);
#pragma unroll
    for (int k = 0; k < V; ++k) y[k] = call(f, x, k, std::make_index_sequence<sizeof...(O)>());
    store_piece<V, H>(out + i, y, count);
  });
}
template <int V, int H = 0, class C = float, class F, class T, class... IN>
KA_FN void pointwise(int64_t n, F f, T* out, IN... in) {
  pointwise_of<V, H, C>(n, f, out, operand(in)...);
}

}  // namespace ka
