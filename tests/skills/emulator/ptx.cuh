// In place of ka/ptx.cuh: the same functions for the emulator. Layouts are those of the PTX ISA.
#pragma once
#include "ka_cuda.cuh"

namespace ka {

inline void copy_async(void* to, const void* from, int bytes) {
  if ((reinterpret_cast<uintptr_t>(to) | (bytes ? reinterpret_cast<uintptr_t>(from) : 0)) & 15) abort();
  memcpy(to, from, bytes);
  memset((char*)to + bytes, 0, 16 - bytes);
}
inline void copy_commit() {}
template <int N> void copy_wait() {}

inline void load_matrices(uint32_t (&x)[4], const void* row, bool transposed = false) {
  if (reinterpret_cast<uintptr_t>(row) & 15) abort();
  const int lane = emulator::current % 32, g = lane / 4, t = lane % 4;
  memcpy(emulator::slot[emulator::current], row, 16);
  emulator::warp_barrier();
  for (int i = 0; i < 4; ++i) {
    const char(*rows)[64] = emulator::slot + emulator::current / 32 * 32 + 8 * i;
    if (!transposed) memcpy(&x[i], rows[g] + 4 * t, 4);
    else memcpy(&x[i], rows[2 * t] + 2 * g, 2), memcpy((char*)&x[i] + 2, rows[2 * t + 1] + 2 * g, 2);
  }
  emulator::warp_barrier();
}
inline void load_matrices_transposed(uint32_t (&x)[4], const void* row) { load_matrices(x, row, true); }

inline float to_tf32(float x) {
  const uint32_t bits = __float_as_uint(x);
  return (bits & 0x7f800000u) == 0x7f800000u ? x : __uint_as_float((bits + 0x1000u) & 0xffffe000u);
}
inline double part(uint32_t word, int, float) { return __uint_as_float(word & 0xffffe000u); }
inline double part(uint32_t word, int k, __nv_bfloat16) { return __uint_as_float(word >> 16 * k << 16); }
inline double part(uint32_t word, int k, __half) { return (float)same_bits<_Float16>((uint16_t)(word >> 16 * k)); }

struct fragments {
  uint32_t a[4], b[2];
};
template <class T> struct tensor_core {
  static void product(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]) {
    const int lane = emulator::current % 32, g = lane / 4, t = lane % 4;
    fragments mine;
    memcpy(mine.a, a, sizeof(mine.a)), memcpy(mine.b, b, sizeof(mine.b));
    memcpy(emulator::slot[emulator::current], &mine, sizeof(mine));
    emulator::warp_barrier();
    float sums[4];
    for (int e = 0; e < 4; ++e) {
      const int row = g + e / 2 * 8, column = 2 * t + e % 2;
      double sum = c[e];
      for (int word = 0; word < 8; ++word) {
        const char(*warp)[64] = emulator::slot + emulator::current / 32 * 32;
        fragments left, right;
        memcpy(&left, warp[row % 8 * 4 + word % 4], sizeof(left));
        memcpy(&right, warp[column * 4 + word % 4], sizeof(right));
        for (int k = 0; k < 4 / (int)sizeof(T); ++k)
          sum += part(left.a[word / 4 * 2 + row / 8], k, T()) * part(right.b[word / 4], k, T());
      }
      sums[e] = (float)sum;
    }
    emulator::warp_barrier();
    memcpy(d, sums, sizeof(sums));
  }
};

}  // namespace ka
