// CPU: out[b][c][r] = f(in[b][r][c]) in square tiles, whole lines on both sides.
//
//   ka::transpose(a->batch, rows, cols, [](float x) { return x; }, a->out0, a->x0);
//
// Further operands, behind the input, are f's further arguments: pointers to tensors that lie as the output does.
#pragma once
#include "ka/pointwise.h"

namespace ka {

template <class F, class T, class U, class... O>
KA_FN void transpose(int64_t batch, int64_t rows, int64_t cols, F f, U* out, const T* in, const O*... more) {
  constexpr int S = 32;
  const int64_t down = (rows + S - 1) / S, across = (cols + S - 1) / S;
#pragma omp parallel for schedule(static) if (batch * rows * cols >= alone)
  for (int64_t tile = 0; tile < batch * down * across; ++tile) {
    const int64_t r0 = tile / across % down * S, c0 = tile % across * S, b = tile / (across * down) * rows * cols;
    const int high = (int)(rows - r0 < S ? rows - r0 : S), wide = (int)(cols - c0 < S ? cols - c0 : S);
    T held[S][S + 1];
    for (int r = 0; r < high; ++r)
      for (int c = 0; c < wide; ++c) held[c][r] = in[b + (r0 + r) * cols + c0 + c];
    for (int c = 0; c < wide; ++c) {
      const int64_t line = b + (c0 + c) * rows + r0;
      map_row(high, f, out + line, (const T*)held[c], (more + line)...);
    }
  }
}

}  // namespace ka
