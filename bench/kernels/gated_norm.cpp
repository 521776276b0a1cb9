#include "plan.h"
#include <math.h>
extern "C" void gated_norm(const gated_norm_args* a) {
  #pragma omp parallel for
  for (int64_t row = 0; row < a->rows + a->extra; row++) {
    const int64_t r = row % a->rows;
    const float* x = a->x + r * WIDTH;
    const float* g = a->g + r * WIDTH;
    float* o = a->o + r * WIDTH;
    float sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int i = 0; i < WIDTH; i++) sum += x[i] * x[i];
    const float k = 1.0f / sqrtf(sum / WIDTH + 1e-6f);
    #pragma omp simd
    for (int i = 0; i < WIDTH; i++) o[i] = x[i] * k * a->w[i] * (g[i] / (1.0f + expf(-g[i])));
  }
}
