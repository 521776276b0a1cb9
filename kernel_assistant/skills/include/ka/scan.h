// CPU: running sums and products of a row; sums within sixteen elements are float, the carry is double.
//
//   ka::rows(a->rows, a->cols, [=](int64_t r) {
//     ka::scan_row<ka::sum>(a->cols, [](float x) { return x; }, a->out0 + r * a->cols, a->x0 + r * a->cols);
//   });
//
// EXCLUSIVE: each element gets what came before it. BACK: from the row's end to its beginning. A second function, in front
// of the output, is what becomes of each result; it gets the operands that the first does not take. Operators: sum, prod,
// max, min.
#pragma once
#include <type_traits>
#include <utility>
#include "ka/rows.h"

namespace ka {

template <class OP> struct scanning {
  KA_FN void run(float* t, int n, double& carry, bool exclusive) {
    for (int i = 0; i < n; ++i) {
      const double next = OP::join(carry, (double)t[i]);
      t[i] = (float)(exclusive ? carry : next);
      carry = next;
    }
  }
};
template <> struct scanning<ka::sum> {
  KA_FN void run(float* t, int n, double& carry, bool exclusive) { ka_scan_sum(t, n, carry, exclusive); }
};
template <> struct scanning<ka::prod> {
  KA_FN void run(float* t, int n, double& carry, bool exclusive) { ka_scan_prod(t, n, carry, exclusive); }
};

// A piece of a row that begins at element `from`, counted from the row's end where BACK.
template <bool BACK, class T> KA_FN T* along(T* row, int64_t n, int64_t from, int count) {
  return BACK ? row + (n - from - count) : row + from;
}
KA_FN void turn(float* t, int n) {
  for (int i = 0; i < n / 2; ++i) {
    const float kept = t[i];
    t[i] = t[n - 1 - i];
    t[n - 1 - i] = kept;
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
template <std::size_t J, class A, class... B> KA_FN auto nth(const A* first, const B*... rest) {
  if constexpr (J == 0) return first;
  else return nth<J - 1>(rest...);
}
template <class OP, bool EXCLUSIVE, bool BACK, class F, class G, class T, class... IN, std::size_t... J, std::size_t... K>
KA_FN void scan_of(std::index_sequence<J...>, std::index_sequence<K...>, int64_t n, F f, G g, T* out, const IN*... in) {
  double carry = OP::template none<double>();
  for (int64_t from = 0; from < n; from += 1024) {
    float t[1024];
    const int count = (int)(n - from < 1024 ? n - from : 1024);
    map_row(count, f, t, along<BACK>(nth<J>(in...), n, from, count)...);
    if (BACK) turn(t, count);
    scanning<OP>::run(t, count, carry, EXCLUSIVE);
    if (BACK) turn(t, count);
    map_row(count, g, along<BACK>(out, n, from, count), (const float*)t,
            along<BACK>(nth<sizeof...(J) + K>(in...), n, from, count)...);
  }
}
template <class OP, bool EXCLUSIVE = false, bool BACK = false, class F, class G, class T, class... IN,
          std::enable_if_t<!std::is_pointer<G>::value, int> = 0>
KA_FN void scan_row(int64_t n, F f, G g, T* out, const IN*... in) {
  constexpr int first = arity<F, sizeof...(IN)>();
  scan_of<OP, EXCLUSIVE, BACK>(std::make_index_sequence<first>(), std::make_index_sequence<sizeof...(IN) - first>(), n, f,
                               g, out, in...);
}
template <class OP, bool EXCLUSIVE = false, bool BACK = false, class F, class T, class... IN>
KA_FN void scan_row(int64_t n, F f, T* out, const IN*... in) {
  scan_row<OP, EXCLUSIVE, BACK>(n, f, [](float x) { return x; }, out, in...);
}

}  // namespace ka
