// CPU: over a dimension that is not the last, of [outer][n][inner]: reductions to [outer][inner], and running sums.
//
//   ka::fold_columns<ka::sum>(outer, n, inner, [](float x) { return x; }, [=](float s) { return s / n; }, a->out0, a->x0);
//   ka::scan_columns<ka::sum>(outer, n, inner, f, g, a->out0, a->x0);
//
// The first function is of the inputs, the second of each result. Sums of 64 rows are float, their total and the carry
// of scans are double. The running sums and products of scan_columns may be EXCLUSIVE or go BACK, as in scan.h.
#pragma once
#include "ka/rows.h"

namespace ka {

constexpr int strip = 128;

// f(corner of a strip of columns, how many it has) for every strip, on all threads.
template <class F> KA_FN void strips(int64_t outer, int64_t n, int64_t inner, F f) {
  const int64_t across = (inner + strip - 1) / strip;
#pragma omp parallel for schedule(static) if (outer * n * inner >= alone)
  for (int64_t s = 0; s < outer * across; ++s) {
    const int64_t c = s % across * strip;
    f(s / across, c, (int)(inner - c < strip ? inner - c : strip));
  }
}
template <class OP, class F, class... O> KA_FN void join_line(int count, float* part, F f, const O&... in) {
#pragma omp simd
  for (int k = 0; k < count; ++k) part[k] = OP::join(part[k], (float)f(in[k]...));
}
template <class OP, class F, class G, class T, class... IN>
KA_FN void fold_columns(int64_t outer, int64_t n, int64_t inner, F f, G g, T* out, const IN*... in) {
  strips(outer, n, inner, [=](int64_t o, int64_t c, int count) {
    double total[strip];
    for (int k = 0; k < count; ++k) total[k] = OP::template none<double>();
    for (int64_t first = 0; first < n; first += 64) {
      float part[strip];
      for (int k = 0; k < count; ++k) part[k] = OP::template none<float>();
      for (int64_t r = first; r < first + 64 && r < n; ++r)
        join_line<OP>(count, part, f, operand<IN>::at(in + (o * n + r) * inner + c, count)...);
      for (int k = 0; k < count; ++k) total[k] = OP::join(total[k], (double)part[k]);
    }
    float sums[strip];
    for (int k = 0; k < count; ++k) sums[k] = (float)total[k];
    map_row(count, g, out + o * inner + c, (const float*)sums);
  });
}
template <class OP, bool EXCLUSIVE, class F, class... O>
KA_FN void scan_line(int count, float* y, double* carry, F f, const O&... in) {
#pragma omp simd
  for (int k = 0; k < count; ++k) {
    const double next = OP::join(carry[k], (double)f(in[k]...));
    y[k] = (float)(EXCLUSIVE ? carry[k] : next);
    carry[k] = next;
  }
}
template <class OP, bool EXCLUSIVE = false, bool BACK = false, class F, class G, class T, class... IN>
KA_FN void scan_columns(int64_t outer, int64_t n, int64_t inner, F f, G g, T* out, const IN*... in) {
  strips(outer, n, inner, [=](int64_t o, int64_t c, int count) {
    double carry[strip];
    for (int k = 0; k < count; ++k) carry[k] = OP::template none<double>();
    for (int64_t r = 0; r < n; ++r) {
      const int64_t line = (o * n + (BACK ? n - 1 - r : r)) * inner + c;
      float y[strip];
      scan_line<OP, EXCLUSIVE>(count, y, carry, f, operand<IN>::at(in + line, count)...);
      map_row(count, g, out + line, (const float*)y);
    }
  });
}

}  // namespace ka
