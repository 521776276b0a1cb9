// CPU: work on rows: a row a thread, sums in many lanes and double totals, softmax, mean and variance.
//
//   extern "C" void rms(const rms_args* a) {
//     ka::rows(a->rows, a->cols, [=](int64_t r) {
//       const float* x = a->x0 + r * a->cols;
//       const float mean = ka::fold_row<ka::sum>(a->cols, [](float v) { return v * v; }, x) / a->cols;
//       const float scale = ka_rsqrt(mean + 1e-6f);
//       ka::map_row(a->cols, [=](float v, float w) { return v * scale * w; }, a->out0 + r * a->cols, x, a->p0);
//     });
//   }
//
// Operators: sum, prod, max, min (a NaN wins). A row is read again from the cache, which is cheaper here than to
// keep it. Row operands and column operands (weights) are both pointers to n elements.
#pragma once
#include "ka/pointwise.h"

namespace ka {

struct sum {
  template <class C> KA_FN C join(C a, C b) { return a + b; }
  template <class C> KA_FN C none() { return C(0); }
};
struct prod {
  template <class C> KA_FN C join(C a, C b) { return a * b; }
  template <class C> KA_FN C none() { return C(1); }
};
struct max {
  template <class C> KA_FN C join(C a, C b) { return ka_max(a, b); }
  template <class C> KA_FN C none() { return C(-INFINITY); }
};
struct min {
  template <class C> KA_FN C join(C a, C b) { return ka_min(a, b); }
  template <class C> KA_FN C none() { return C(INFINITY); }
};

// f(row) for every row; `columns` says how much work one is.
template <class F> KA_FN void rows(int64_t count, int64_t columns, F f) {
#pragma omp parallel for schedule(static) if (count > 1 && count * columns >= alone)
  for (int64_t r = 0; r < count; ++r) f(r);
}

// Joins f(in[i], …) with as many lanes at once as fit between i and n; where it stopped.
template <int LANES, class OP, class F, class... O> KA_FN int64_t join_lanes(float* lane, int64_t i, int64_t n, F f, const O&... in) {
  for (; i + LANES <= n; i += LANES) {
#pragma omp simd
    for (int k = 0; k < LANES; ++k) lane[k] = OP::join(lane[k], (float)f(in[i + k]...));
  }
  return i;
}
// Many lanes where they pay, so that one addition need not wait for the one before; eight for what is left, then one.
template <int LANES, class OP, class F, class... O> KA_FN double fold_lanes(int64_t n, F f, const O&... in) {
  float lane[LANES];
  for (int k = 0; k < LANES; ++k) lane[k] = OP::template none<float>();
  int64_t i = join_lanes<LANES, OP>(lane, 0, n, f, in...);
  if (LANES > 8) i = join_lanes<8, OP>(lane, i, n, f, in...);
  for (int k = 0; i + k < n; ++k) lane[k] = OP::join(lane[k], (float)f(in[i + k]...));
  double total = OP::template none<double>();
  if (LANES > 8) {
    double wide[LANES];
#pragma omp simd
    for (int k = 0; k < LANES; ++k) wide[k] = (double)lane[k];
    total = ka_tree<LANES>::fold(wide, [](double a, double b) { return OP::join(a, b); });
  } else {
    for (int k = 0; k < LANES; ++k) total = OP::join(total, (double)lane[k]);
  }
  return total;
}
template <class OP, class F, class... O> KA_FN double fold_piece(int64_t n, F f, const O&... in) {
  if (n < 16) return fold_lanes<1, OP>(n, f, in...);
  if (n < 256) return fold_lanes<8, OP>(n, f, in...);
  return fold_lanes<64, OP>(n, f, in...);
}
// OP over f(in[i], …) of a row: lanes of float within 1024 elements, double beyond.
template <class OP, class F, class... IN> KA_FN double fold_row(int64_t n, F f, IN... in) {
  double total = OP::template none<double>();
  for (int64_t b = 0; b < n; b += piece) {
    const int64_t count = n - b < piece ? n - b : piece;
    total = OP::join(total, fold_piece<OP>(count, f, bring(in + b, count)...));
  }
  return total;
}

struct moments {
  double mean, m2;
  int64_t count;
};
// Σ(x − mean) and Σ(x − mean)² of a piece.
template <class F, class... O> KA_FN void spread_piece(int64_t n, float mean, double* sums, F f, const O&... in) {
  constexpr int lanes = 16;
  float first[lanes] = {}, second[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
#pragma omp simd
    for (int k = 0; k < lanes; ++k) {
      const float d = (float)f(in[i + k]...) - mean;
      first[k] += d;
      second[k] += d * d;
    }
  }
  for (int k = 0; i + k < n; ++k) {
    const float d = (float)f(in[i + k]...) - mean;
    first[k] += d;
    second[k] += d * d;
  }
  for (int k = 0; k < lanes; ++k) sums[0] += first[k], sums[1] += second[k];
}
template <class F, class T, class... IN> KA_FN moments row_moments(int64_t n, F f, T first, IN... in) {
  const float mean = (float)(fold_row<ka::sum>(n, f, first, in...) / (double)n);
  double sums[2] = {0, 0};
  for (int64_t b = 0; b < n; b += piece) {
    const int64_t count = n - b < piece ? n - b : piece;
    spread_piece(count, mean, sums, f, bring(first + b, count), bring(in + b, count)...);
  }
  // What rounding the mean left out comes back with the sum of the differences.
  return {(double)mean + sums[0] / (double)n, sums[1] - sums[0] * sums[0] / (double)n, n};
}
template <class T> KA_FN moments row_moments(int64_t n, const T* in) {
  return row_moments(n, [](float x) { return x; }, in);
}
KA_FN float variance(const moments& of, int correction = 0) { return (float)(of.m2 / (double)(of.count - correction)); }

// Column of the largest f(in[column], …): the first of them, or of the NaNs.
template <class F, class... IN> KA_FN int64_t place_row(int64_t n, F f, IN... in) {
  const float top = (float)fold_row<ka::max>(n, f, in...);
  for (int64_t b = 0; b < n; b += piece) {
    float held[piece];
    const int64_t count = n - b < piece ? n - b : piece;
    map_row(count, f, held, (in + b)...);
    int64_t i = 0;
    for (int found = 0; i + 64 <= count; i += 64) {
#pragma omp simd reduction(| : found)
      for (int64_t k = i; k < i + 64; ++k) found |= (held[k] == top) | (held[k] != held[k]);
      if (found) break;
    }
    for (; i < count; ++i)
      if (held[i] == top || held[i] != held[i]) return b + i;
  }
  return 0;
}

template <class F, class... IN> KA_FN void softmax_row(int64_t n, F f, float* out, const IN*... in) {
  const float top = (float)fold_row<ka::max>(n, f, in...);
  map_row(n, [=](auto... x) { return ka_exp(f(x...) - top); }, out, in...);
  const float share = (float)(1.0 / fold_row<ka::sum>(n, [](float x) { return x; }, out));
  map_row(n, [=](float x) { return x * share; }, out, out);
}
template <class F, class T, class... IN> KA_FN void softmax_row(int64_t n, F f, T* out, const IN*... in) {
  const float top = (float)fold_row<ka::max>(n, f, in...);
  const float share = (float)(1.0 / fold_row<ka::sum>(n, [=](auto... x) { return ka_exp(f(x...) - top); }, in...));
  map_row(n, [=](auto... x) { return ka_exp(f(x...) - top) * share; }, out, in...);
}

}  // namespace ka
