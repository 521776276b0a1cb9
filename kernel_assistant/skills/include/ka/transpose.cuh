// out[b][c][r] = f(in[b][r][c]): square tiles through shared memory, whole lines on both sides, no bank conflicts.
//
//   extern "C" __global__ void __launch_bounds__(256) turn(const __grid_constant__ turn_args a) {
//     ka::transpose<256>(a.rows, a.cols, [](float x) { return x; }, a.out0, a.x0);
//   }                                            // plan: grid batch · cdiv(rows, 64) · cdiv(cols, 64), block 256
//
// Further operands, behind the input, are f's further arguments: pointers to tensors that lie as the output does.
#pragma once
#include "ka/vec.cuh"

namespace ka {

template <int THREADS, class F, class T, class U, class... O>
KA_FN void transpose(int64_t rows, int64_t cols, F f, U* out, const T* in, const O*... more) {
  constexpr int S = 64, step = THREADS / S;
  static_assert(THREADS % S == 0, "whole rows of a tile");
  // A column of the tile is an odd number of words apart from its neighbour.
  __shared__ T held[S][S + (sizeof(T) < 4 ? 4 / sizeof(T) : 1)];
  const int64_t across = (cols + S - 1) / S, down = (rows + S - 1) / S;
  const int64_t r0 = blockIdx.x / across % down * S, c0 = blockIdx.x % across * S;
  const int64_t batch = blockIdx.x / (across * down) * rows * cols;
  const int x = threadIdx.x % S, y = threadIdx.x / S;
  const T* from = in + batch + r0 * cols + c0;
  const int64_t corner = batch + c0 * rows + r0;
  U* to = out + corner;
  const bool inside = r0 + S <= rows && c0 + S <= cols;
  if constexpr (sizeof(T) == 2 && sizeof(U) == 2 && sizeof...(O) == 0) {
    // Two neighbours at a time where both sides have them: half as many instructions.
    if (inside && aligned<2>(in) && aligned<2>(out) && rows % 2 == 0 && cols % 2 == 0) {
      constexpr int down_by = THREADS / 32, count = S / down_by;
      const int px = threadIdx.x % 32 * 2, py = threadIdx.x / 32;
      T two[count][2];
#pragma unroll
      for (int i = 0; i < count; ++i) ka_load<2, 0>(two[i], from + (py + i * down_by) * cols + px);
#pragma unroll
      for (int i = 0; i < count; ++i) ka_store<2, 0>(&held[py + i * down_by][px], two[i]);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < count; ++i) {
        U pair[2];
        ka_put(pair[0], f(ka_get(held[px][py + i * down_by])));
        ka_put(pair[1], f(ka_get(held[px + 1][py + i * down_by])));
        ka_store<2, 0>(to + (py + i * down_by) * rows + px, pair);
      }
      return;
    }
  }
  T mine[S / step];  // all loads are under way before the first is used
#pragma unroll
  for (int i = 0; i < S / step; ++i)
    if (inside || (r0 + y + i * step < rows && c0 + x < cols)) mine[i] = from[(y + i * step) * cols + x];
#pragma unroll
  for (int i = 0; i < S / step; ++i) held[y + i * step][x] = mine[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < S / step; ++i)
    if (inside || (c0 + y + i * step < cols && r0 + x < rows))
      ka_put(to[(y + i * step) * rows + x],
             f(ka_get(held[x][y + i * step]), ka_get((more + corner)[(y + i * step) * rows + x])...));
}

}  // namespace ka
