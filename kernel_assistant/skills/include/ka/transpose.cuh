// out[b][c][r] = f(in[b][r][c]): square tiles through shared memory, whole lines on both sides, no bank conflicts.
//
//   extern "C" __global__ void __launch_bounds__(256) turn(const __grid_constant__ turn_args a) {
//     ka::transpose<256>(a.rows, a.cols, [](float x) { return x; }, a.out0, a.x0);
//   }                   // plan: grid batch · cdiv(rows, S) · cdiv(cols, S), S = 64 for half types, 32 for others
#pragma once
#include "ka/vec.cuh"

namespace ka {

template <class T> constexpr int tile = sizeof(T) <= 2 ? 64 : 32;

template <int THREADS, class F, class T, class U> KA_FN void transpose(int64_t rows, int64_t cols, F f, U* out, const T* in) {
  constexpr int S = tile<T>, step = THREADS / S;
  static_assert(THREADS % S == 0, "whole rows of a tile");
  // A column of the tile is an odd number of words apart from its neighbour.
  __shared__ T held[S][S + (sizeof(T) < 4 ? 4 / sizeof(T) : 1)];
  const int64_t across = (cols + S - 1) / S, down = (rows + S - 1) / S;
  const int64_t r0 = blockIdx.x / across % down * S, c0 = blockIdx.x % across * S;
  const int64_t batch = blockIdx.x / (across * down) * rows * cols;
  const int x = threadIdx.x % S, y = threadIdx.x / S;
  const T* from = in + batch + r0 * cols + c0;
  U* to = out + batch + c0 * rows + r0;
  if constexpr (sizeof(T) == 2 && sizeof(U) == 2) {
    // Two neighbours at a time where both sides have them: half as many instructions.
    const bool pairs = aligned<2>(in) && aligned<2>(out) && rows % 2 == 0 && cols % 2 == 0;
    const int px = threadIdx.x % 32 * 2, py = threadIdx.x / 32;
    if (pairs && r0 + S <= rows && c0 + S <= cols) {
#pragma unroll
      for (int i = py; i < S; i += THREADS / 32) {
        T two[2];
        ka_load<2, 0>(two, from + i * cols + px);
        held[i][px] = two[0], held[i][px + 1] = two[1];
      }
      __syncthreads();
#pragma unroll
      for (int i = py; i < S; i += THREADS / 32) {
        U two[2];
        ka_put(two[0], f(ka_get(held[px][i])));
        ka_put(two[1], f(ka_get(held[px + 1][i])));
        ka_store<2, 0>(to + i * rows + px, two);
      }
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < S; i += step)
    if (r0 + y + i < rows && c0 + x < cols) held[y + i][x] = from[(y + i) * cols + x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < S; i += step)
    if (c0 + y + i < cols && r0 + x < rows) ka_put(to[(y + i) * rows + x], f(ka_get(held[x][y + i])));
}

}  // namespace ka
