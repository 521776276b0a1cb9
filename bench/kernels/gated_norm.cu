#include "plan.h"
extern "C" __global__ void __launch_bounds__(256) gated_norm(const __grid_constant__ gated_norm_args a) {
  __shared__ float part[8];
  const int64_t r = blockIdx.x % a.rows;
  const float4* x = (const float4*)(a.x + r * WIDTH);
  const float4* g = (const float4*)(a.g + r * WIDTH);
  const float4* w = (const float4*)a.w;
  float4* o = (float4*)(a.o + r * WIDTH);
  float4 v[WIDTH / 1024];
  float s = 0;
  #pragma unroll
  for (int i = 0; i < WIDTH / 1024; i++) {
    v[i] = x[threadIdx.x + i * 256];
    s += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
  }
  for (int m = 16; m; m >>= 1) s += __shfl_xor_sync(~0u, s, m);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = s;
  __syncthreads();
  s = 0;
  for (int i = 0; i < 8; i++) s += part[i];
  const float k = rsqrtf(s / WIDTH + 1e-6f);
  #pragma unroll
  for (int i = 0; i < WIDTH / 1024; i++) {
    const float4 y = g[threadIdx.x + i * 256], u = w[threadIdx.x + i * 256];
    float4 q;
    q.x = v[i].x * k * u.x * (y.x / (1 + expf(-y.x)));
    q.y = v[i].y * k * u.y * (y.y / (1 + expf(-y.y)));
    q.z = v[i].z * k * u.z * (y.z / (1 + expf(-y.z)));
    q.w = v[i].w * k * u.w * (y.w / (1 + expf(-y.w)));
    o[threadIdx.x + i * 256] = q;
  }
}
