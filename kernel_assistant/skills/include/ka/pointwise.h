// CPU: out[i] = f(x[i], y[i], …) over n elements, vectorised, on all threads where that pays.
//
//   extern "C" void gate(const gate_args* a) {
//     ka::pointwise(a->n, [](float x, float g) { return x * ka_sigmoid(g); }, a->out0, a->x0, a->x1);
//   }
//
// Half types arrive as float and are rounded once. Use the functions of ka_cpu.h and ka_math.h (ka_exp, ka_tanh,
// ka_gelu, …): they have no branches, so the loop stays one of vectors; those of <math.h> do not vectorise. An operand
// along the last dimension (a bias) is a column operand of `ka::map_row` (rows.h).
#pragma once
#include "ka_cpu.h"

namespace ka {

// Below this many elements, waking the other threads takes longer than the work.
constexpr int64_t alone = 32768;

template <class F, class T, class... IN> KA_FN void map_row(int64_t n, F f, T* out, const IN*... in) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) ka_put(out[i], f(ka_get(in[i])...));
}
template <class F, class T, class... IN> KA_FN void pointwise(int64_t n, F f, T* out, const IN*... in) {
  constexpr int64_t block = 4096;
  const int64_t blocks = (n + block - 1) / block;
#pragma omp parallel for schedule(static) if (n >= alone)
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t from = b * block, count = n - from < block ? n - from : block;
    map_row(count, f, out + from, (in + from)...);
  }
}

}  // namespace ka
