// CPU: running sums and products of a row; sums within sixteen elements are float, the carry is double.
//
//   ka::rows(a->rows, a->cols, [=](int64_t r) {
//     ka::scan_row<ka::add>(a->cols, [](float x) { return x; }, a->out0 + r * a->cols, a->x0 + r * a->cols);
//   });
//
// EXCLUSIVE: each element gets what came before it. Operators: add, times.
#pragma once
#include "ka/rows.h"

namespace ka {

template <class OP> struct scanning;
template <> struct scanning<add> {
  KA_FN void run(float* t, int n, double& carry, bool exclusive) { ka_scan_sum(t, n, carry, exclusive); }
};
template <> struct scanning<times> {
  KA_FN void run(float* t, int n, double& carry, bool exclusive) { ka_scan_prod(t, n, carry, exclusive); }
};

template <class OP, bool EXCLUSIVE = false, class F, class T, class... IN>
KA_FN void scan_row(int64_t n, F f, T* out, const IN*... in) {
  double carry = OP::template none<double>();
  for (int64_t from = 0; from < n; from += 1024) {
    float t[1024];
    const int count = (int)(n - from < 1024 ? n - from : 1024);
    map_row(count, f, t, (in + from)...);
    scanning<OP>::run(t, count, carry, EXCLUSIVE);
    map_row(count, [](float x) { return x; }, out + from, (const float*)t);
  }
}

}  // namespace ka
