// The instructions of the tensor cores (sm_80 and newer) as functions: asynchronous copies, fragments, products.
// Layouts are those of the PTX ISA, "Matrix multiply-accumulate operation using mma instruction": with g = lane / 4 and
// t = lane % 4, a 16×8 result holds rows g and g + 8, columns 2t and 2t + 1.
#pragma once
#include "ka_cuda.cuh"

namespace ka {

// 16 bytes to shared memory, the last 16 − bytes of them zero; both sides are aligned to 16.
KA_FN void copy_async(void* to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from),
               "r"(bytes)
               : "memory");
}
KA_FN void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most N of the groups that were committed are under way.
template <int N> KA_FN void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Four 8×8 matrices of 16-bit elements, or of 8×4 words; the lanes 8i … 8i + 7 name the rows of matrix i.
KA_FN void load_matrices(uint32_t (&x)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"((uint32_t)__cvta_generic_to_shared(row))
               : "memory");
}
KA_FN void load_matrices_transposed(uint32_t (&x)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"((uint32_t)__cvta_generic_to_shared(row))
               : "memory");
}

// The TF32 number next to x (10 bits of mantissa), as a float.
KA_FN float to_tf32(float x) {
  uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return __uint_as_float(y);
}

// d = a·b + c: 16×8 of float, from 16×8 and 8×8 of TF32, or 16×16 and 16×8 of bf16 or f16.
#define KA_MMA(shape_and_types)                                                                             \
  asm volatile("mma.sync.aligned." shape_and_types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};" \
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),    \
                 "f"(c[2]), "f"(c[3]))
template <class T> struct tensor_core;
template <> struct tensor_core<float> {
  KA_FN void product(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]) {
    KA_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
  }
};
#ifdef __CUDA_BF16_TYPES_EXIST__
template <> struct tensor_core<__nv_bfloat16> {
  KA_FN void product(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]) {
    KA_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
  }
};
#endif
#ifdef __CUDA_FP16_TYPES_EXIST__
template <> struct tensor_core<__half> {
  KA_FN void product(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]) {
    KA_MMA("m16n8k16.row.col.f32.f16.f16.f32");
  }
};
#endif
#undef KA_MMA

}  // namespace ka
