// CPU: out[i] = f(x[i], y[i], …) over n elements, vectorised, on all threads where that pays.
//
//   extern "C" void gate(const gate_args* a) {
//     ka::pointwise(a->n, [](float x, float g) { return x * ka_sigmoid(g); }, a->out0, a->x0, a->x1);
//   }
//
// Half types arrive as float and are rounded once. Use the functions of ka_cpu.h and ka_math.h (ka_exp, ka_tanh,
// ka_gelu, …): they have no branches, so the loop stays one of vectors; those of <math.h> do not vectorise. An operand
// along the last dimension (a bias) is a column operand of `ka::map_row` (rows.h). Several results: `ka::blocks`, and a
// `ka::map_row` for each.
#pragma once
#include "ka_cpu.h"

namespace ka {

// Below this many elements, waking the other threads takes longer than the work.
constexpr int64_t alone = 32768;

// A piece of a row as an operand of a loop. g++ 12 makes no vectors of a loop that converts _Float16, so these are
// converted before and after it.
constexpr int piece = 1024;
template <class T> struct operand {
  const T* p;
  KA_FN operand at(const T* from, int64_t) { return {from}; }
  auto operator[](int64_t i) const { return ka_get(p[i]); }
};
template <class T> KA_FN operand<T> bring(const T* p, int64_t n) { return operand<T>::at(p, n); }
// p[i / inner]: the weights of channels in a row of channels with `inner` pixels each.
template <class T> struct steps_of {
  const T* p;
  int64_t inner, first;
  steps_of operator+(int64_t by) const { return {p, inner, first + by}; }
};
template <class T> KA_FN steps_of<T> steps(const T* p, int64_t inner) { return {p, inner, 0}; }
// p[i * step]: a row that lies across memory, read or written.
template <class T> struct down_of {
  T* p;
  int64_t step;
  down_of operator+(int64_t by) const { return {p + by * step, step}; }
};
template <class T> KA_FN down_of<T> down(T* p, int64_t step) { return {p, step}; }
struct filled {
  float held[piece];
  float operator[](int64_t i) const { return held[i]; }
};
template <class T> KA_FN filled bring(const steps_of<T>& s, int64_t n) {
  filled one;
  int64_t at = s.first / s.inner, end = (at + 1) * s.inner - s.first;
  for (int64_t i = 0; i < n; ++at, end += s.inner) {
    const float here = (float)ka_get(s.p[at]);
    for (; i < n && i < end; ++i) one.held[i] = here;
  }
  return one;
}
template <class T> KA_FN filled bring(const down_of<T>& s, int64_t n) {
  filled one;
  for (int64_t i = 0; i < n; ++i) one.held[i] = (float)ka_get(s.p[i * s.step]);
  return one;
}
template <class T> struct result {
  T* p;
  KA_FN result at(T* to) { return {to}; }
  template <class C> void set(int64_t i, C x) { ka_put(p[i], x); }
  void done(int64_t) {}
};
#if defined(__FLT16_MAX__)
#if defined(__F16C__)
// Eight values: <immintrin.h> would take most of a compilation.
typedef short halves __attribute__((vector_size(16)));
typedef _Float16 half_values __attribute__((vector_size(16)));
typedef float floats __attribute__((vector_size(32)));
#endif
KA_FN void widen(float* to, const _Float16* from, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    halves eight;
    memcpy(&eight, from + i, sizeof eight);
#if defined(__clang__)
    const floats wide = __builtin_convertvector((half_values)eight, floats);
#else
    const floats wide = __builtin_ia32_vcvtph2ps256(eight);
#endif
    memcpy(to + i, &wide, sizeof wide);
  }
#endif
  for (; i < n; ++i) to[i] = (float)from[i];
}
KA_FN void round_to_half(_Float16* to, const float* from, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    floats eight;
    memcpy(&eight, from + i, sizeof eight);
    // To the nearest, ties to even.
    const halves narrow = __builtin_ia32_vcvtps2ph256(eight, 0);
    memcpy(to + i, &narrow, sizeof narrow);
  }
#endif
  for (; i < n; ++i) to[i] = (_Float16)from[i];
}
template <> struct operand<_Float16> {
  float held[piece];
  KA_FN operand at(const _Float16* from, int64_t n) {
    operand one;
    widen(one.held, from, n);
    return one;
  }
  float operator[](int64_t i) const { return held[i]; }
};
template <> struct result<_Float16> {
  _Float16* p;
  float held[piece];
  KA_FN result at(_Float16* to) {
    result one;
    one.p = to;
    return one;
  }
  void set(int64_t i, float x) { held[i] = x; }
  void done(int64_t n) { round_to_half(p, held, n); }
};
#endif
template <class T> struct scattered {
  down_of<T> to;
  float held[piece];
  void set(int64_t i, float x) { held[i] = x; }
  void done(int64_t n) {
    for (int64_t i = 0; i < n; ++i) ka_put(to.p[i * to.step], held[i]);
  }
};
template <class T> KA_FN result<T> into(T* p) { return result<T>::at(p); }
template <class T> KA_FN scattered<T> into(const down_of<T>& to) {
  scattered<T> one;
  one.to = to;
  return one;
}
template <class F, class R, class... O> KA_FN void map_piece(int64_t n, F f, R to, const O&... in) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to.set(i, f(in[i]...));
  to.done(n);
}
template <class F, class OUT, class... IN> KA_FN void map_row(int64_t n, F f, OUT out, IN... in) {
  for (int64_t b = 0; b < n; b += piece) {
    const int64_t count = n - b < piece ? n - b : piece;
    map_piece(count, f, into(out + b), bring(in + b, count)...);
  }
}
// f(from, count) for pieces of n elements, on all threads where that pays.
template <class F> KA_FN void blocks(int64_t n, F f) {
  constexpr int64_t block = 4096;
  const int64_t pieces = (n + block - 1) / block;
#pragma omp parallel for schedule(static) if (n >= alone)
  for (int64_t b = 0; b < pieces; ++b) f(b * block, n - b * block < block ? n - b * block : block);
}
template <class F, class T, class... IN> KA_FN void pointwise(int64_t n, F f, T* out, const IN*... in) {
  blocks(n, [=](int64_t from, int64_t count) { map_row(count, f, out + from, (in + from)...); });
}

}  // namespace ka
