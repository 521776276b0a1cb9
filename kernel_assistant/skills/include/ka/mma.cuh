// out[m][n] = f(Σ a[m][k]·b[k][n], m, n) on tensor cores, for any sizes: float, bf16 or f16, sums in float.
//
//   using linear = ka::product<float, ka::accurate, ka::rows_of_k, ka::rows_of_k>;      // x[M][K], weight[N][K]
//   extern "C" __global__ void __launch_bounds__(linear::threads) layer(const __grid_constant__ layer_args a) {
//     linear::run(a.x0, a.p0, a.m, a.n, a.k, a.out0, [&](float v, int, int n) { return ka_gelu(v + a.p1[n]); });
//   }                          // plan: grid cdiv(m, 128) · cdiv(n, 128), block 256, shared 81920 (see below)
//
// Precision of float: `accurate` is three TF32 products of operands split in two, each slab of K added in float (as
// exact as float32 itself); `fast` is one TF32 product (relative error 1e-3: only where the reference allows TF32). Half
// types take `fast`. Layout of an operand: `rows_of_k`, each row m (or n) holds its K neighbours; `columns_of_k`, each
// row k holds M (or N) neighbours: a plain second operand b[K][N]. Batches: add to the pointers, blockIdx.y say.
//
// Shared memory: STAGES times 10240 bytes for each operand of rows_of_k; of columns_of_k 8704. Above 48 KiB it must be
// in the plan's `shared`. Tiles that are not whole and rows that are not aligned to 16 bytes are read element by element.
// A product that a library can do as it stands is better left to `cublaslt.matmul` in the plan.
#pragma once
#include "ka/ptx.cuh"

namespace ka {

enum precision { fast, accurate };
enum layout { rows_of_k, columns_of_k };

// One operand's tile in shared memory: SIZE rows (or columns) and 64 bytes of K, padded so that no fragment's load has
// bank conflicts. The object is what one thread brings of every tile; all that does not change with K is computed once.
template <class T, layout L, int SIZE, int THREADS> struct operand_tile {
  static constexpr int depth = 64 / sizeof(T), chunk = 16 / sizeof(T);
  static constexpr int rows = L == rows_of_k ? SIZE : depth, columns = L == rows_of_k ? depth : SIZE;
  static constexpr int stride = columns + (L == rows_of_k ? chunk : 8), elements = rows * stride;
  static constexpr int across = columns / chunk, count = rows * across / THREADS;
  static_assert(rows * across % THREADS == 0, "every thread brings as many chunks");

  const T* source[count];
  int ahead[count];  // what is left of K from here, in elements; at most 0 outside of the operand
  int width[count];  // columns_of_k: elements of the chunk that exist
  int64_t step;
  bool whole;  // chunks are aligned to 16 bytes

  // The tiles of an operand of `size` by `k`, from row (or column) `at` on.
  __device__ __forceinline__ operand_tile(const T* from, int64_t at, int64_t size, int64_t k) {
    const int64_t line = L == rows_of_k ? k : size;
    whole = (reinterpret_cast<uintptr_t>(from) & 15) == 0 && line % chunk == 0;
    step = L == rows_of_k ? depth : depth * size;
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const int i = threadIdx.x + j * THREADS, r = i / across, c = i % across * chunk;
      if (L == rows_of_k) {
        source[j] = from + (at + r) * k + c;
        ahead[j] = at + r < size ? (int)k - c : 0;
      } else {
        source[j] = from + r * size + at + c;
        const int64_t exist = size - (at + c);
        width[j] = exist < chunk ? (int)exist : chunk;
        ahead[j] = exist > 0 ? (int)k - r : 0;
      }
    }
  }
  // Brings the next tile; zeros outside.
  __device__ __forceinline__ void fetch(T* tile) {
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const int i = threadIdx.x + j * THREADS;
      T* target = tile + i / across * stride + i % across * chunk;
      const int most = L == rows_of_k ? ahead[j] : width[j];
      const int exist = ahead[j] <= 0 ? 0 : (most < chunk ? most : chunk);
      if (whole) {
        copy_async(target, source[j], exist * (int)sizeof(T));
      } else {
#pragma unroll
        for (int e = 0; e < chunk; ++e) target[e] = e < exist ? source[j][e] : T(0.0f);
      }
      source[j] += step;
      ahead[j] -= depth;
    }
  }
  // 16 rows from `at`, words of K from 8·step: the fragment of the left operand.
  KA_FN void left(uint32_t (&x)[4], const T* tile, int at, int step) {
    const int lane = threadIdx.x % 32;
    if constexpr (L == rows_of_k) {
      load_matrices(x, tile + (at + lane % 16) * stride + (step * 2 + lane / 16) * chunk);
    } else if constexpr (sizeof(T) == 2) {
      load_matrices_transposed(x, tile + (step * 16 + lane % 8 + lane / 16 * 8) * stride + at + lane / 8 % 2 * 8);
    } else {
      const uint32_t* from = reinterpret_cast<const uint32_t*>(tile) + (step * 8 + lane % 4) * stride + at + lane / 4;
      x[0] = from[0], x[1] = from[8], x[2] = from[4 * stride], x[3] = from[4 * stride + 8];
    }
  }
  // 16 columns from `at`: two fragments of the right operand, {x[0], x[1]} and {x[2], x[3]}.
  KA_FN void right(uint32_t (&x)[4], const T* tile, int at, int step) {
    const int lane = threadIdx.x % 32;
    if constexpr (L == rows_of_k) {
      load_matrices(x, tile + (at + lane % 8 + lane / 16 * 8) * stride + (step * 2 + lane / 8 % 2) * chunk);
    } else if constexpr (sizeof(T) == 2) {
      load_matrices_transposed(x, tile + (step * 16 + lane % 16) * stride + at + lane / 16 * 8);
    } else {
      const uint32_t* from = reinterpret_cast<const uint32_t*>(tile) + (step * 8 + lane % 4) * stride + at + lane / 4;
      x[0] = from[0], x[1] = from[4 * stride], x[2] = from[8], x[3] = from[4 * stride + 8];
    }
  }
};

// x becomes TF32, what that leaves goes to `low`. An infinity goes there as a whole: times the other operand's low part
// it would be NaN. (Two infinities that meet give NaN.)
KA_FN void split(uint32_t& x, uint32_t& low) {
  const float all = __uint_as_float(x), high = to_tf32(all);
  const bool infinite = fabsf(high) == INFINITY;
  x = __float_as_uint(infinite ? 0.0f : high);
  low = __float_as_uint(infinite ? high : to_tf32(all - high));
}

// Blocks of BM·BN results, warps of WM·WN.
template <class T, precision P, layout LA, layout LB, int STAGES = 4, int BM = 128, int BN = 128, int WM = 64, int WN = 32>
struct product {
  static constexpr int threads = BM / WM * (BN / WN) * 32, across = BN / WN;
  typedef operand_tile<T, LA, BM, threads> A;
  typedef operand_tile<T, LB, BN, threads> B;
  static constexpr int stage = A::elements + B::elements, shared = STAGES * stage * (int)sizeof(T);
  static constexpr int MT = WM / 16, NT = WN / 8;
  static constexpr bool exact = P == accurate;
  static_assert(!exact || sizeof(T) == 4, "half types are exact as they are: ka::fast");

  template <class U, class F> KA_FN void run(const T* a, const T* b, int64_t m, int64_t n, int64_t k, U* out, F f) {
    extern __shared__ __align__(16) unsigned char ka_stages[];
    T* tiles = reinterpret_cast<T*>(ka_stages);
    int64_t bm, bn;
    place(blockIdx.x, (m + BM - 1) / BM, (n + BN - 1) / BN, bm, bn);
    A left(a, bm, m, k);
    B right(b, bn, n, k);
    const int slabs = (int)((k + A::depth - 1) / A::depth);
    int fetched = 0;
    T* to = tiles;
    const auto fetch = [&] {
      if (fetched < slabs) {
        left.fetch(to);
        right.fetch(to + A::elements);
      }
      copy_commit();
      ++fetched;
      to = to == tiles + (STAGES - 1) * stage ? tiles : to + stage;
    };
    float total[MT][NT][4] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) fetch();
    const int wm = threadIdx.x / 32 / across * WM, wn = threadIdx.x / 32 % across * WN;
    const T* here = tiles;
    for (int slab = 0; slab < slabs; ++slab) {
      copy_wait<STAGES - 2>();
      __syncthreads();
      fetch();
      accumulate(total, here, here + A::elements, wm, wn);
      here = here == tiles + (STAGES - 1) * stage ? tiles : here + stage;
    }
    copy_wait<0>();
    finish(total, bm + wm, bn + wn, m, n, out, f);
  }

  // Neighbouring blocks share rows and columns: bands of eight rows of tiles.
  KA_FN void place(int64_t block, int64_t tall, int64_t wide, int64_t& bm, int64_t& bn) {
    const int64_t band = block / (8 * wide), height = tall - band * 8 < 8 ? tall - band * 8 : 8;
    const int64_t within = block - band * 8 * wide;
    bm = (band * 8 + within % height) * BM;
    bn = within / height * BN;
  }
  // One slab of K. Exact: summed from zero, then added with rounding, because tensor cores truncate.
  KA_FN void accumulate(float (&total)[MT][NT][4], const T* a, const T* b, int wm, int wn) {
    float sum[MT][NT][4];
    if constexpr (exact) {
#pragma unroll
      for (int i = 0; i < MT * NT * 4; ++i) sum[i / 4 / NT][i / 4 % NT][i % 4] = 0.0f;
    }
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint32_t x[MT][4], y[NT / 2][4], low_x[MT][4], low_y[NT / 2][4];
#pragma unroll
      for (int i = 0; i < MT; ++i) A::left(x[i], a, wm + i * 16, step), narrow(x[i], low_x[i]);
#pragma unroll
      for (int j = 0; j < NT / 2; ++j) B::right(y[j], b, wn + j * 16, step), narrow(y[j], low_y[j]);
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        const uint32_t right[2] = {y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]};
        if constexpr (exact) {
          const uint32_t low[2] = {low_y[j / 2][j % 2 * 2], low_y[j / 2][j % 2 * 2 + 1]};
#pragma unroll
          for (int i = 0; i < MT; ++i) tensor_core<T>::product(sum[i][j], low_x[i], right, sum[i][j]);
#pragma unroll
          for (int i = 0; i < MT; ++i) tensor_core<T>::product(sum[i][j], x[i], low, sum[i][j]);
#pragma unroll
          for (int i = 0; i < MT; ++i) tensor_core<T>::product(sum[i][j], x[i], right, sum[i][j]);
        } else {
#pragma unroll
          for (int i = 0; i < MT; ++i) tensor_core<T>::product(total[i][j], x[i], right, total[i][j]);
        }
      }
    }
    if constexpr (exact) {
#pragma unroll
      for (int i = 0; i < MT * NT * 4; ++i) total[i / 4 / NT][i / 4 % NT][i % 4] += sum[i / 4 / NT][i / 4 % NT][i % 4];
    }
  }
  KA_FN void narrow(uint32_t (&x)[4], uint32_t (&low)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (exact) split(x[i], low[i]);
      else if constexpr (sizeof(T) == 4) x[i] = __float_as_uint(to_tf32(__uint_as_float(x[i])));
    }
  }
  template <class U, class F>
  KA_FN void finish(const float (&total)[MT][NT][4], int64_t m0, int64_t n0, int64_t m, int64_t n, U* out, F f) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const bool pairs = n % 2 == 0 && (reinterpret_cast<uintptr_t>(out) & (2 * sizeof(U) - 1)) == 0;
#pragma unroll
    for (int i = 0; i < MT * NT * 2; ++i) {
      const int64_t row = m0 + i / 2 / NT * 16 + i % 2 * 8 + g, column = n0 + i / 2 % NT * 8 + 2 * t;
      if (row >= m || column >= n) continue;
      const float* two = &total[i / 2 / NT][i / 2 % NT][i % 2 * 2];
      U y[2];
      ka_put(y[0], f(two[0], (int)row, (int)column));
      if (column + 1 < n) ka_put(y[1], f(two[1], (int)row, (int)column + 1));
      U* to = out + row * n + column;
      if (pairs) {
        ka_store<2, 0>(to, y);
      } else {
        to[0] = y[0];
        if (column + 1 < n) to[1] = y[1];
      }
    }
  }
};

}  // namespace ka
