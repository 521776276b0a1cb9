// schedule: rows/keep lanes=64 nt=1
//| dims B=4
//| input x0 f32[B,512,3072]
//| input x1 f32[B,512,3072]
//| param p0 f32[3072] weight
//| %n0 = silu(%x1) f32[B,512,3072]
//| %n1 = mul.Tensor(%x0, %n0) f32[B,512,3072]
//| %n2 = pow.Tensor_Scalar(%n1, 2) f32[B,512,3072]
//| %n3 = mean.dim(%n2, [-1], true) f32[B,512,1]
//| %n4 = add.Tensor(%n3, 1e-06) f32[B,512,1]
//| %n5 = rsqrt(%n4) f32[B,512,1]
//| %n6 = mul.Tensor(%n1, %n5) f32[B,512,3072]
//| %n7 = mul.Tensor(%n6, %p0) f32[B,512,3072]
//| return %n7
#include "plan.h"
#include "ka_cpu.h"

extern "C" void rows(const rows_args* a) {
  const int64_t dim_B = a->dim_B;
  const int64_t O = 512*dim_B, R = 3072;
  #pragma omp parallel for schedule(static) if (O * R > 32768)
  for (int64_t o = 0; o < O; ++o) {
    const float* __restrict__ x0 = a->x0 + (int64_t)3072 * o;
    const float* __restrict__ x1 = a->x1 + (int64_t)3072 * o;
    const float* __restrict__ p0 = a->p0;
    float* __restrict__ out0 = a->out0 + (int64_t)3072 * o;
    alignas(64) float k0[3072];
    double total_r0 = 0;
    const auto step_r0 = [&](int64_t q, float& r0) __attribute__((always_inline)) {
      const float t0 = ka_get(x0[q]);
      const float t1 = ka_get(x1[q]);
      const float t2 = ka_silu(t1);
      const float t3 = t0 * t2;
      const float t4 = t3 * t3;
      k0[q] = t3;
      r0 += t4;
    };
    for (int64_t c = 0; c < R; c += 8192) {
      const int64_t stop = ka_min(R, c + 8192);
      float lane_r0[64];
      for (int l = 0; l < 64; ++l) lane_r0[l] = 0;
      int64_t q = c;
      for (; q + 64 <= stop; q += 64) {
        #pragma omp simd
        for (int l = 0; l < 64; ++l) step_r0(q + l, lane_r0[l]);
      }
      const int left = (int)(stop - q);
      #pragma omp simd
      for (int l = 0; l < left; ++l) step_r0(q + l, lane_r0[l]);
      total_r0 += ka_fold_sum<64>(lane_r0);
    }
    const float r0 = (float)total_r0;
    const float s2 = r0 / 3072.0f;
    const float s4 = s2 + 9.99999997e-07f;
    const float s5 = ka_rsqrt(s4);
    for (int64_t c = 0; c < R; c += 512) {
      const int64_t stop = ka_min(R, c + 512);
      alignas(64) float tile_out0[512];
      #pragma omp simd
      for (int64_t q = c; q < stop; ++q) {
        const float t7 = k0[q] * s5;
        const float t8 = ka_get(p0[q]);
        const float t9 = t7 * t8;
        ka_put(tile_out0[q - c], t9);
      }
      ka_stream(out0 + c, tile_out0, (stop - c) * sizeof(out0[0]));
    }
    ka_stream_end();
  }
}
