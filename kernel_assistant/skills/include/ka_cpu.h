// CPU side: half types, loads and stores, branch-free elementary functions that g++ vectorises, scans, streaming stores.
// Errors of the float functions against exact values are at most about 2 units in the last place.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
// Not <immintrin.h>, which took two thirds of a compilation.
#include <emmintrin.h>
#endif

#if defined(KA_LIBMVEC)
// glibc's vector variants (since 2.22), which g++ would only take by itself under -ffast-math.
extern "C" {
__attribute__((simd("notinbranch"))) float sinf(float) noexcept;
__attribute__((simd("notinbranch"))) float cosf(float) noexcept;
__attribute__((simd("notinbranch"))) float powf(float, float) noexcept;
}
#endif

#define KA_FN static inline __attribute__((always_inline, unused))

struct ka_bf16 { uint16_t bits; };

KA_FN float ka_as_float(int32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
KA_FN int32_t ka_as_int(float x) { int32_t bits; memcpy(&bits, &x, 4); return bits; }

KA_FN float ka_get(float x) { return x; }
KA_FN double ka_get(double x) { return x; }
KA_FN bool ka_get(bool x) { return x; }
KA_FN int64_t ka_get(int64_t x) { return x; }
KA_FN int64_t ka_get(int32_t x) { return x; }
KA_FN int64_t ka_get(int16_t x) { return x; }
KA_FN int64_t ka_get(int8_t x) { return x; }
KA_FN int64_t ka_get(uint8_t x) { return x; }
KA_FN float ka_get(ka_bf16 x) { return ka_as_float((int32_t)((uint32_t)x.bits << 16)); }
#if defined(__FLT16_MAX__)
KA_FN float ka_get(_Float16 x) { return (float)x; }
KA_FN void ka_put(_Float16& to, float x) { to = (_Float16)x; }
KA_FN float ka_round_f16(float x) { return (float)(_Float16)x; }
#endif
KA_FN void ka_put(float& to, float x) { to = x; }
KA_FN void ka_put(double& to, double x) { to = x; }
KA_FN void ka_put(bool& to, bool x) { to = x; }
KA_FN void ka_put(int64_t& to, int64_t x) { to = x; }
KA_FN void ka_put(int32_t& to, int64_t x) { to = (int32_t)x; }
KA_FN void ka_put(int16_t& to, int64_t x) { to = (int16_t)x; }
KA_FN void ka_put(int8_t& to, int64_t x) { to = (int8_t)x; }
KA_FN void ka_put(uint8_t& to, int64_t x) { to = (uint8_t)x; }
KA_FN void ka_put(ka_bf16& to, float x) {
  const uint32_t bits = (uint32_t)ka_as_int(x);
  const uint32_t even = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  to.bits = (uint16_t)(x != x ? 0x7fc0u : even);
}
KA_FN float ka_round_bf16(float x) { ka_bf16 y; ka_put(y, x); return ka_get(y); }

KA_FN float ka_abs(float x) { return __builtin_fabsf(x); }
KA_FN double ka_abs(double x) { return __builtin_fabs(x); }
KA_FN float ka_sqrt(float x) { return __builtin_sqrtf(x); }
KA_FN double ka_sqrt(double x) { return __builtin_sqrt(x); }
KA_FN float ka_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
KA_FN double ka_rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
KA_FN float ka_reciprocal(float x) { return 1.0f / x; }
KA_FN double ka_reciprocal(double x) { return 1.0 / x; }
KA_FN float ka_floor(float x) { return __builtin_floorf(x); }
KA_FN double ka_floor(double x) { return __builtin_floor(x); }
KA_FN float ka_ceil(float x) { return __builtin_ceilf(x); }
KA_FN double ka_ceil(double x) { return __builtin_ceil(x); }
KA_FN float ka_round(float x) { return __builtin_rintf(x); }
KA_FN double ka_round(double x) { return __builtin_rint(x); }
KA_FN float ka_trunc(float x) { return __builtin_truncf(x); }
KA_FN double ka_trunc(double x) { return __builtin_trunc(x); }
// A nan on either side wins, as in PyTorch.
KA_FN float ka_max(float a, float b) { const float m = a > b ? a : b; return a != a ? a : m; }
KA_FN double ka_max(double a, double b) { const double m = a > b ? a : b; return a != a ? a : m; }
KA_FN float ka_min(float a, float b) { const float m = a < b ? a : b; return a != a ? a : m; }
KA_FN double ka_min(double a, double b) { const double m = a < b ? a : b; return a != a ? a : m; }

// e^x = 2^n·e^r with |r| ≤ ln 2 / 2; coefficients: Chebyshev interpolation of (e^r - 1 - r) / r². Adding 1.5·2^23 rounds
// x / ln 2 to n in the low bits of the sum. Below -87 the result is made 2^64 times larger first, for denormal numbers.
// What is no number at all any more is 0 before that product: one that underflows takes many times as long.
KA_FN float ka_exp(float x) {
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.3926176e-3f;
  p = p * r + 8.3631733e-3f;
  p = p * r + 4.1666556e-2f;
  p = p * r + 1.6666578e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const bool small = x < -87.0f;
  const uint32_t power = ((uint32_t)ka_as_int(shifted) << 23) + (small ? 64u << 23 : 0u);
  const float large = ka_as_float((int32_t)((uint32_t)ka_as_int(p) + power));
  const float scaled = (x < -103.98f ? 0.0f : large) * (small ? 5.42101086e-20f : 1.0f);
  return x > 88.7228317f ? INFINITY : scaled;
}
KA_FN float ka_expm1(float x) {
  float p = 2.4922436e-5f;
  p = p * x + 1.9962176e-4f;
  p = p * x + 1.3888738e-3f;
  p = p * x + 8.3331820e-3f;
  p = p * x + 4.1666668e-2f;
  p = p * x + 1.6666667e-1f;
  p = p * x + 0.5f;
  const float near = p * (x * x) + x;
  const float far = ka_exp(x) - 1.0f;
  return (x < 0.5f) & (x > -0.5f) ? near : far;
}
// Mantissa in [√½, √2), series of log(1+m) after m - m²/2.
KA_FN float ka_log(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const int32_t bits = ka_as_int(tiny ? x * 8388608.0f : x);
  const int32_t shifted = bits - 0x3f3504f3;
  const float e = (float)(shifted >> 23) - (tiny ? 23.0f : 0.0f);
  const float m = ka_as_float((shifted & 0x007fffff) + 0x3f3504f3) - 1.0f;
  float p = 6.9716118e-2f;
  p = p * m - 1.1479734e-1f;
  p = p * m + 1.1685420e-1f;
  p = p * m - 1.2425687e-1f;
  p = p * m + 1.4249058e-1f;
  p = p * m - 1.6667803e-1f;
  p = p * m + 2.0000716e-1f;
  p = p * m - 2.4999997e-1f;
  p = p * m + 3.3333331e-1f;
  const float z = m * m;
  const float tail = p * m * z + e * -2.12194440e-4f - 0.5f * z;
  const float y = m + tail + e * 0.693359375f;
  const float edge = x == 0.0f ? -INFINITY : (x == INFINITY ? x : NAN);
  return (x > 0.0f) & (x < INFINITY) ? y : edge;
}
KA_FN float ka_log1p(float x) {
  const float u = 1.0f + x;
  const float y = ka_log(u) * (x / (u - 1.0f));
  return u == 1.0f ? x : (u == INFINITY ? u : y);
}
KA_FN float ka_tanh(float x) {
  const float z = x * x;
  float p = 2.2695018e-3f;
  p = p * z - 8.3231870e-3f;
  p = p * z + 2.1762503e-2f;
  p = p * z - 5.3958461e-2f;
  p = p * z + 1.3333300e-1f;
  p = p * z - 3.3333334e-1f;
  const float near = p * z * x + x;
  const float a = ka_abs(x);
  const float far = __builtin_copysignf(1.0f - 2.0f / (ka_exp(2.0f * a) + 1.0f), x);
  return a < 0.625f ? near : far;
}
// |x| < 0.93: odd series; above: 1 - exp of a fit to log(1 - erf).
KA_FN float ka_erf(float x) {
  const float z = x * x;
  float p = 8.3168794e-5f;
  p = p * z - 8.1304449e-4f;
  p = p * z + 5.1999893e-3f;
  p = p * z - 2.6858997e-2f;
  p = p * z + 1.1283689e-1f;
  p = p * z - 3.7612632e-1f;
  p = p * z + 1.2837917e-1f;
  const float near = p * x + x;
  const float a = ka_abs(x);
  const float t = a > 4.0f ? 4.0f : a;
  float q = -1.6430637e-6f;
  q = q * t + 4.6163859e-5f;
  q = q * t - 5.9758575e-4f;
  q = q * t + 4.7626258e-3f;
  q = q * t - 2.6427638e-2f;
  q = q * t + 1.1008716e-1f;
  q = q * t + 6.3182390e-1f;
  q = q * t + 1.1302310f;
  q = q * t - 3.1853965e-4f;
  const float far = __builtin_copysignf(1.0f - ka_exp(-q), x);
  return a < 0.93f ? near : (x != x ? x : far);
}
// x·Φ(x) without the cancellation in 1 + erf: x - x/2·c above 0, x/2·c below, with c = erfc(|x|/√2) = 2^-q. q is a
// polynomial of |x|, minimax with the weight c; beyond 5.7 c is 0. Errors: 1 unit in the last place above 0, 4e-8 below.
KA_FN float ka_gelu(float x) {
  const float a = ka_abs(x);
  float q = 2.83491272e-6f;
  q = q * a - 3.937769e-5f;
  q = q * a + 1.86180245e-4f;
  q = q * a + 1.36936374e-4f;
  q = q * a - 7.06342002e-3f;
  q = q * a + 5.24961799e-2f;
  q = q * a + 4.5920819e-1f;
  q = q * a + 1.15110517f;
  q = q * a;
  const float shifted = 12582912.0f - q;
  const float r = (12582912.0f - shifted) - q;
  float p = 1.53458124e-4f;
  p = p * r + 1.33999309e-3f;
  p = p * r + 9.61848907e-3f;
  p = p * r + 5.55032864e-2f;
  p = p * r + 2.40226462e-1f;
  p = p * r + 6.93147182e-1f;
  p = p * r + 1.0f;
  const float power = ka_as_float((int32_t)((uint32_t)ka_as_int(p) + ((uint32_t)ka_as_int(shifted) << 23)));
  const float half = 0.5f * x * (a > 5.7f ? 0.0f : power);
  return x > 0.0f ? x - half : half;
}
KA_FN float ka_sinh(float x) {
  const float m = ka_expm1(ka_abs(x));
  const float big = ka_exp(0.5f * ka_abs(x));
  const float y = m > 1e30f ? 0.5f * big * big : 0.5f * (m + m / (m + 1.0f));
  return __builtin_copysignf(y, x);
}
KA_FN float ka_cosh(float x) {
  const float half = ka_exp(0.5f * ka_abs(x));
  return 0.5f * half * half + 0.5f / half / half;
}
KA_FN float ka_log2(float x) { return ka_log(x) * 1.44269504f; }
KA_FN float ka_log10(float x) { return ka_log(x) * 0.434294482f; }
KA_FN float ka_exp2(float x) { return exp2f(x); }
KA_FN float ka_pow(float x, float y) { return powf(x, y); }
KA_FN float ka_sin(float x) { return sinf(x); }
// Without its sign, seen as bits: of sinf and cosf of one number g++ makes a single call that has no vector variant.
KA_FN float ka_cos(float x) { return cosf(ka_as_float(ka_as_int(x) & 0x7fffffff)); }
KA_FN float ka_tan(float x) { return tanf(x); }
KA_FN float ka_asin(float x) { return asinf(x); }
KA_FN float ka_acos(float x) { return acosf(x); }
KA_FN float ka_atan(float x) { return atanf(x); }
KA_FN float ka_atan2(float y, float x) { return atan2f(y, x); }
KA_FN float ka_erfc(float x) { return erfcf(x); }
KA_FN float ka_lgamma(float x) {
  int sign;
  return lgammaf_r(x, &sign);
}
KA_FN double ka_lgamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}
// A rational start (Giles's, as PyTorch has it) and two steps of Newton's method.
KA_FN double ka_erfinv(double y) {
  const double a = __builtin_fabs(y);
  double x;
  if (a <= 0.7) {
    const double z = y * y;
    const double above = ((-0.140543331 * z + 0.914624893) * z - 1.645349621) * z + 0.886226899;
    x = y * above / ((((0.012229801 * z - 0.329097515) * z + 1.442710462) * z - 2.118377725) * z + 1.0);
  } else if (a < 1.0) {
    const double z = __builtin_sqrt(-log((1.0 - a) / 2.0));
    const double above = ((1.641345311 * z + 3.429567803) * z - 1.624906493) * z - 1.970840454;
    x = __builtin_copysign(above, y) / ((1.637067800 * z + 3.543889200) * z + 1.0);
  } else {
    return a == 1.0 ? __builtin_copysign((double)INFINITY, y) : (double)NAN;
  }
  for (int step = 0; step < 2; ++step) x -= (erf(x) - y) / (1.1283791670955126 * exp(-x * x));
  return x;
}
KA_FN float ka_erfinv(float y) { return (float)ka_erfinv((double)y); }

// What is left of a after whole multiples of b, without a call. Of floats, through double: a quotient below 2^25 that is not
// whole is 2^-24 or more away from the next whole number (both mantissas have 24 bits). The factor 1 + 2^-51 makes up for
// two roundings, so that a whole one is not below itself, and the other is off by less than 2^-25; so trunc is right, and
// a - n·b exact. The division does not depend on a: that of a number that all share is done once. Of doubles, through fma:
// the rounded quotient is n or, from below the next whole number, n + 1; then what is left has the wrong sign. Both fma
// are exact where the quotient is below 2^53.
#define KA_SIMD(text) _Pragma(#text)
#if !defined(__GNUC__) || defined(__clang__)
#define KA_RARE(lanes, most) KA_FN
#elif defined(__AVX512F__)
// Where g++ prefers vectors of 256 bits, it finds no use for a variant of 512.
#define KA_RARE(lanes, most) \
  KA_SIMD(omp declare simd notinbranch simdlen(lanes)) KA_SIMD(omp declare simd notinbranch simdlen(most)) \
  static __attribute__((noinline, unused))
#else
#define KA_RARE(lanes, most) static __attribute__((simd("notinbranch"), noinline, unused))
#endif
KA_RARE(8, 16) float ka_fmod_far(float a, float b, float near) {
  const float x = __builtin_fabsf(a), y = __builtin_fabsf(b);
  return (x >= 33554432.0f * y) & (y > 0.0f) & (x < INFINITY) ? fmodf(a, b) : near;
}
KA_FN float ka_fmod_near(float a, float b) {
  const double n = __builtin_trunc((double)a * ((1.0 + 4.44089209850062616e-16) / (double)b));
  return __builtin_copysignf(ka_abs(a) < ka_abs(b) ? a : (float)((double)a - n * (double)b), a);
}
KA_FN float ka_fmod(float a, float b) { return ka_fmod_far(a, b, ka_fmod_near(a, b)); }
// From 2^25 on what is left does not change a quotient of floats any more: it is below half the distance to a's neighbour.
KA_FN float ka_left(float a, float b) {
  const float far = b == 0.0f ? 0.0f : a - a;
  return ka_abs(a) < 33554432.0f * ka_abs(b) ? ka_fmod_near(a, b) : far;
}
#if defined(__FMA__) || defined(__aarch64__)
KA_RARE(4, 8) double ka_fmod_far(double a, double b, double near) {
  const double x = __builtin_fabs(a), y = __builtin_fabs(b);
  return (x >= 9007199254740992.0 * y) & (y > 0.0) & (x < INFINITY) ? fmod(a, b) : near;
}
KA_FN double ka_fmod(double a, double b) {
  const double left = __builtin_fma(-__builtin_trunc(a / b), b, a);
  const bool beyond = (left != 0.0) & ((left < 0.0) != (a < 0.0));
  const double mended = beyond ? left + __builtin_copysign(b, a) : left;
  return ka_fmod_far(a, b, __builtin_copysign(ka_abs(a) < ka_abs(b) ? a : mended, a));
}
#else
KA_FN double ka_fmod(double x, double y) { return fmod(x, y); }
#endif
// Bits instead of a choice, of which g++ makes a branch that it cannot vectorise.
KA_FN double ka_left(double a, double b) {
  double left = ka_fmod(a, b);
  int64_t bits;
  memcpy(&bits, &left, 8);
  bits &= -(int64_t)(b != 0.0);
  memcpy(&left, &bits, 8);
  return left;
}

// Quotients of integers through floating point, for which there are vectors, are exact: one that is not whole is 1 / |b|
// or more away from the next whole number, and the error is below 2^-8 / |b|.
#define KA_QUOTIENT(T, REAL) \
  KA_FN T ka_quotient(T a, T b) { return __builtin_constant_p(b) ? (T)(a / b) : (T)((REAL)a / (REAL)b); }
KA_QUOTIENT(uint8_t, float) KA_QUOTIENT(int8_t, float) KA_QUOTIENT(int16_t, float) KA_QUOTIENT(int32_t, double)
KA_FN int64_t ka_quotient(int64_t a, int64_t b) { return a / b; }
#define KA_LIBM(name) KA_FN double ka_##name(double x) { return name(x); }
KA_LIBM(exp) KA_LIBM(exp2) KA_LIBM(expm1) KA_LIBM(log) KA_LIBM(log2) KA_LIBM(log10) KA_LIBM(log1p) KA_LIBM(sin)
KA_LIBM(cos) KA_LIBM(tan) KA_LIBM(asin) KA_LIBM(acos) KA_LIBM(atan) KA_LIBM(sinh) KA_LIBM(cosh) KA_LIBM(tanh)
KA_LIBM(erf) KA_LIBM(erfc)
KA_FN double ka_pow(double x, double y) { return pow(x, y); }
KA_FN double ka_atan2(double y, double x) { return atan2(y, x); }

#include "ka_math.h"

// Folds of the lanes of one chunk, as a tree (destroys them).
template <int N> struct ka_tree {
  template <class T, class F> KA_FN T fold(T* lane, F join) {
#pragma omp simd
    for (int i = 0; i < N / 2; ++i) lane[i] = join(lane[i], lane[i + N / 2]);
    return ka_tree<N / 2>::fold(lane, join);
  }
};
template <> struct ka_tree<1> {
  template <class T, class F> KA_FN T fold(T* lane, F) { return lane[0]; }
};
template <int N, class T> KA_FN T ka_fold_sum(T* lane) { return ka_tree<N>::fold(lane, [](T a, T b) { return a + b; }); }
// The last sixteen in double: their sums are so large that rounding them would be the greatest error of all.
template <int N> KA_FN double ka_fold_sum(float* lane) {
  constexpr int last = N < 16 ? N : 16;
  for (int n = N / 2; n >= last; n /= 2) {
#pragma omp simd
    for (int i = 0; i < n; ++i) lane[i] += lane[i + n];
  }
  double wide[last];
#pragma omp simd
  for (int i = 0; i < last; ++i) wide[i] = lane[i];
  return ka_tree<last>::fold(wide, [](double a, double b) { return a + b; });
}
template <int N, class T> KA_FN T ka_fold_max(T* lane) { return ka_tree<N>::fold(lane, [](T a, T b) { return ka_max(a, b); }); }
template <int N, class T> KA_FN T ka_fold_min(T* lane) { return ka_tree<N>::fold(lane, [](T a, T b) { return ka_min(a, b); }); }
// Products of many lanes leave the range of float sooner than of double.
template <int N, class T> KA_FN double ka_fold_prod(T* lane) {
  double total = 1;
  for (int i = 0; i < N; ++i) total *= (double)lane[i];
  return total;
}
template <int N> KA_FN int64_t ka_fold_prod(int64_t* lane) {
  return ka_tree<N>::fold(lane, [](int64_t a, int64_t b) { return ka_mul(a, b); });
}

#if defined(__AVX512F__)
typedef long long ka_line __attribute__((vector_size(64)));
#endif

// Copies without reading the destination into the cache.
KA_FN void ka_stream(void* to, const void* from, int64_t bytes) {
#if defined(__SSE2__)
  char* d = (char*)to;
  const char* s = (const char*)from;
  int64_t head = (64 - ((intptr_t)d & 63)) & 63;
  if (head > bytes) head = bytes;
  memcpy(d, s, head);
  int64_t i = head;
#if defined(__AVX512F__)
  for (; i + 64 <= bytes; i += 64) {
    ka_line line;
    memcpy(&line, s + i, 64);
#if defined(__clang__)
    __builtin_nontemporal_store(line, (ka_line*)(d + i));
#else
    __builtin_ia32_movntdq512((ka_line*)(d + i), line);
#endif
  }
#else
  for (; i + 16 <= bytes; i += 16) _mm_stream_si128((__m128i*)(d + i), _mm_loadu_si128((const __m128i*)(s + i)));
#endif
  memcpy(d + i, s + i, bytes - i);
#else
  memcpy(to, from, bytes);
#endif
}
KA_FN void ka_stream_end() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Running sum or product of t[0…n) in place, going on from `carry` (double, so that long rows stay exact enough);
// exclusive: each element gets what was before it.
// A register is summed at once: a wider vector would be taken apart into its elements.
#if defined(__AVX512F__)
#define KA_SCAN_LANES 16
#elif defined(__AVX__)
#define KA_SCAN_LANES 8
#else
#define KA_SCAN_LANES 4
#endif
typedef float ka_scan_floats __attribute__((vector_size(4 * KA_SCAN_LANES)));
typedef int32_t ka_scan_ints __attribute__((vector_size(4 * KA_SCAN_LANES)));
template <int S> KA_FN ka_scan_floats ka_shift(ka_scan_floats x) {
  const ka_scan_floats zero = {};
  ka_scan_ints from;
  for (int i = 0; i < KA_SCAN_LANES; ++i) from[i] = i < S ? KA_SCAN_LANES : i - S;
  return __builtin_shuffle(x, zero, from);
}
KA_FN void ka_scan_sum(float* t, int n, double& carry, bool exclusive) {
  int i = 0;
  for (; i + KA_SCAN_LANES <= n; i += KA_SCAN_LANES) {
    ka_scan_floats raw;
    memcpy(&raw, t + i, sizeof raw);
    ka_scan_floats x = raw + ka_shift<1>(raw);
    x += ka_shift<2>(x);
    if (KA_SCAN_LANES > 4) x += ka_shift<4>(x);
    if (KA_SCAN_LANES > 8) x += ka_shift<8>(x);
    const double next = carry + (double)x[KA_SCAN_LANES - 1];
    if (exclusive) x = ka_shift<1>(x);
    const float high = (float)carry, low = (float)(carry - (double)high);
    x = (x + low) + high;
    memcpy(t + i, &x, sizeof x);
    carry = next;
  }
  for (; i < n; ++i) {
    const double next = carry + (double)t[i];
    t[i] = (float)(exclusive ? carry : next);
    carry = next;
  }
}
template <class T> KA_FN void ka_scan_sum(T* t, int n, double& carry, bool exclusive) {
  for (int i = 0; i < n; ++i) {
    const double next = carry + (double)t[i];
    t[i] = (T)(exclusive ? carry : next);
    carry = next;
  }
}
KA_FN void ka_scan_sum(int64_t* t, int n, int64_t& carry, bool exclusive) {
  for (int i = 0; i < n; ++i) {
    const int64_t next = carry + t[i];
    t[i] = exclusive ? carry : next;
    carry = next;
  }
}
template <class T> KA_FN void ka_scan_prod(T* t, int n, double& carry, bool exclusive) {
  for (int i = 0; i < n; ++i) {
    const double next = carry * (double)t[i];
    t[i] = (T)(exclusive ? carry : next);
    carry = next;
  }
}
KA_FN void ka_scan_prod(int64_t* t, int n, int64_t& carry, bool exclusive) {
  for (int i = 0; i < n; ++i) {
    const int64_t next = carry * t[i];
    t[i] = exclusive ? carry : next;
    carry = next;
  }
}
// Running extremes and sums of exponentials are never exclusive.
template <class T> KA_FN void ka_scan_logaddexp(T* t, int n, double& carry, bool) {
  for (int i = 0; i < n; ++i) t[i] = (T)(carry = ka_logaddexp(carry, (double)t[i]));
}
template <class T, class B> KA_FN void ka_scan_max(T* t, int n, B& carry, bool) {
  for (int i = 0; i < n; ++i) t[i] = (T)(carry = ka_max(carry, (B)t[i]));
}
template <class T, class B> KA_FN void ka_scan_min(T* t, int n, B& carry, bool) {
  for (int i = 0; i < n; ++i) t[i] = (T)(carry = ka_min(carry, (B)t[i]));
}
