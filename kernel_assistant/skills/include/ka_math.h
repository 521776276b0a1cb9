// Activations and small functions over float and double, the same for both targets. The target's header comes first:
// it defines KA_FN and ka_exp, ka_log, ka_log1p, ka_expm1, ka_tanh, ka_erf, ka_sqrt, ka_rsqrt, ka_abs, ka_floor, and
// ka_reciprocal: 1/x to one unit in the last place; ka_quotient: a / b of integers, where b is neither 0 nor -1; ka_left:
// what ka_fmod leaves if that can matter to a quotient, 0 where b is 0.
#pragma once
#include <math.h>

template <class T> KA_FN T ka_square(T x) { return x * x; }
// Also of unsigned integers, where nvcc warns of a comparison with 0 unless they are int by then.
template <class T> KA_FN bool ka_below_zero(T x) { return x + T(0) < 0; }
KA_FN bool ka_below_zero(float x) { return x < 0.0f; }
KA_FN bool ka_below_zero(double x) { return x < 0.0; }
// 0 of what is no number, as PyTorch has it.
template <class T> KA_FN T ka_sign(T x) { return T(x > T(0)) - T(ka_below_zero(x)); }
template <class T> KA_FN T ka_sgn(T x) { return ka_sign(x); }
KA_FN bool ka_max(bool a, bool b) { return a | b; }
KA_FN bool ka_min(bool a, bool b) { return a & b; }
// Integers of every type compute in their own width: what leaves the range wraps. Nothing traps: dividing by 0, for which
// PyTorch raises, gives 0, and the smallest number by -1 is itself. A shift by more than there are bits, or by less than 0,
// takes all of them, as in PyTorch.
template <class T> struct ka_unsigned { typedef uint32_t type; };
template <> struct ka_unsigned<int64_t> { typedef uint64_t type; };
template <class T> using ka_bits = typename ka_unsigned<T>::type;
template <class T> KA_FN T ka_add(T a, T b) { return (T)((ka_bits<T>)a + (ka_bits<T>)b); }
template <class T> KA_FN T ka_sub(T a, T b) { return (T)((ka_bits<T>)a - (ka_bits<T>)b); }
template <class T> KA_FN T ka_mul(T a, T b) { return (T)((ka_bits<T>)a * (ka_bits<T>)b); }
template <class T> KA_FN T ka_neg(T a) { return (T)((ka_bits<T>)0 - (ka_bits<T>)a); }
template <class T> KA_FN T ka_abs(T a) { return ka_below_zero(a) ? ka_neg(a) : a; }
template <class T> KA_FN T ka_max(T a, T b) { return a > b ? a : b; }
template <class T> KA_FN T ka_min(T a, T b) { return a < b ? a : b; }
template <class T> KA_FN T ka_clamp(T x, T low, T high) { return ka_min(ka_max(x, low), high); }
// Whether b and what is left of a division by b have different signs.
template <class T> KA_FN bool ka_signs_differ(T left, T b) { return (left != T(0)) & (ka_below_zero(left) != ka_below_zero(b)); }
template <class T> KA_FN bool ka_minus_one(T b) { return (T(-1) < T(1)) & (b == T(-1)); }
template <class T> KA_FN T ka_safe_divisor(T b) { return (b == T(0)) | ka_minus_one(b) ? T(1) : b; }
template <class T> KA_FN T ka_divide(T a, T b) {
  const T q = ka_quotient(a, ka_safe_divisor(b));
  return b == T(0) ? T(0) : ka_minus_one(b) ? ka_neg(a) : q;
}
template <class T> KA_FN T ka_fmod(T a, T b) {
  const T d = ka_safe_divisor(b);
  return ka_sub(a, ka_mul(ka_quotient(a, d), d));
}
template <class T> KA_FN T ka_shift_left(T a, T by) {
  const bool inside = !ka_below_zero(by) & (by < T(8 * sizeof(T)));
  return inside ? (T)((ka_bits<T>)a << (inside ? (int)by : 0)) : T(0);
}
template <class T> KA_FN T ka_shift_right(T a, T by) {
  const int most = 8 * sizeof(T) - (T(-1) < T(1));
  return (T)(a >> (!ka_below_zero(by) & (by < T(most)) ? (int)by : most));
}
template <class T> KA_FN T ka_pow(T a, T n) {
  T p = 1, x = a;
  for (T left = n; left > T(0); left >>= 1, x = ka_mul(x, x)) p = left & 1 ? ka_mul(p, x) : p;
  const T below = a == T(-1) ? (n & 1 ? T(-1) : T(1)) : T(0);
  return !ka_below_zero(n) || a == T(1) ? p : below;
}
KA_FN float ka_clamp(float x, float low, float high) { return ka_min(ka_max(x, low), high); }
KA_FN double ka_clamp(double x, double low, double high) { return ka_min(ka_max(x, low), high); }
template <class T> KA_FN T ka_relu(T x) { return ka_below_zero(x) ? T(0) : x; }
template <class T> KA_FN T ka_relu6(T x) { return ka_clamp(x, T(0), T(6)); }
template <class T> KA_FN T ka_leaky_relu(T x, T slope) { return x > T(0) ? x : x * slope; }
template <class T> KA_FN T ka_sigmoid(T x) { return ka_reciprocal(T(1) + ka_exp(-x)); }
template <class T> KA_FN T ka_silu(T x) { return x * ka_reciprocal(T(1) + ka_exp(-x)); }
template <class T> KA_FN T ka_elu(T x, T alpha, T scale, T input_scale) {
  return x > T(0) ? x * scale : alpha * scale * ka_expm1(x * input_scale);
}
template <class T> KA_FN T ka_celu(T x, T alpha) { return x > T(0) ? x : alpha * ka_expm1(x / alpha); }
template <class T> KA_FN T ka_selu(T x) {
  return ka_elu(x, T(1.6732632423543772848170429916717), T(1.0507009873554804934193349852946), T(1));
}
// log(1 + e) for e in [0, 1], to 1.5 units in the last place: e - e²·(½ - …); the coefficients minimise the relative error.
KA_FN double ka_log1p_unit(double e) { return ka_log1p(e); }
KA_FN float ka_log1p_unit(float e) {
  float p = 5.36473887e-3f;
  p = p * e - 3.00654508e-2f;
  p = p * e + 7.92039782e-2f;
  p = p * e - 0.137537554f;
  p = p * e + 0.191536337f;
  p = p * e - 0.248571575f;
  p = p * e + 0.33321321f;
  p = p * e - 0.499996483f;
  return p * (e * e) + e;
}
// e^-|x| never overflows, and log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
template <class T> KA_FN T ka_softplus(T x, T beta, T threshold) {
  const T z = x * beta, e = ka_exp(-ka_abs(z)), soft = (ka_log1p_unit(e) + (z > T(0) ? z : T(0))) / beta;
  return z > threshold ? x : soft;
}
template <class T> KA_FN T ka_log_sigmoid(T x) { return (x < T(0) ? x : T(0)) - ka_log1p_unit(ka_exp(-ka_abs(x))); }
// tanh(log(1 + e^x)) as a quotient of e^-|x|.
template <class T> KA_FN T ka_mish(T x) {
  const T e = ka_exp(-ka_abs(x)), above = x > T(0) ? T(1) + T(2) * e : e * (e + T(2));
  return x * above * ka_reciprocal(above + (x > T(0) ? T(2) * e * e : T(2)));
}
template <class T> KA_FN T ka_hardsigmoid(T x) { return ka_clamp(x + T(3), T(0), T(6)) / T(6); }
template <class T> KA_FN T ka_hardswish(T x) { return x * ka_clamp(x + T(3), T(0), T(6)) / T(6); }
template <class T> KA_FN T ka_softshrink(T x, T lambd) { return x > lambd ? x - lambd : (x < -lambd ? x + lambd : x * T(0)); }
template <class T> KA_FN T ka_gelu(T x) { return x * T(0.5) * (T(1) + ka_erf(x * T(0.70710678118654752440))); }
template <class T> KA_FN T ka_gelu_tanh(T x) {
  return T(0.5) * x * (T(1) + ka_tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
}
template <class T> KA_FN T ka_lerp(T a, T b, T weight) {
  return ka_abs(weight) < T(0.5) ? a + weight * (b - a) : b - (b - a) * (T(1) - weight);
}
KA_FN float ka_copysign(float x, float y) { return copysignf(x, y); }
KA_FN double ka_copysign(double x, double y) { return copysign(x, y); }
KA_FN bool ka_signbit(float x) { return ka_as_int(x) < 0; }
KA_FN bool ka_signbit(double x) { return copysign(1.0, x) < 0.0; }
template <class T> KA_FN T ka_remainder(T a, T b) { const T r = ka_fmod(a, b); return ka_signs_differ(r, b) ? r + b : r; }
// Of real numbers as PyTorch defines it (c10/util/generic_math.h), so that 1 // 0.1 is 9: what fmod leaves is taken off
// first.
template <class T> KA_FN T ka_floor_divide(T a, T b) {
  if constexpr (T(0.5) == T(0)) {
    return (T)(ka_divide(a, b) - ka_signs_differ(ka_fmod(a, b), b));
  } else {
    const T left = ka_left(a, b), quotient = (a - left) / b;
    const T whole = ka_signs_differ(left, b) ? quotient - T(1) : quotient, low = ka_floor(whole);
    const T floor = whole - low > T(0.5) ? low + T(1) : low;
    return ka_copysign(floor, ka_copysign(T(1), a) * ka_copysign(T(1), b));
  }
}
// Also for an int64_t beside a literal.
KA_FN int64_t ka_max(int64_t a, int64_t b) { return ka_max<int64_t>(a, b); }
KA_FN int64_t ka_min(int64_t a, int64_t b) { return ka_min<int64_t>(a, b); }
KA_FN int64_t ka_clamp(int64_t x, int64_t low, int64_t high) { return ka_clamp<int64_t>(x, low, high); }
KA_FN int64_t ka_fmod(int64_t a, int64_t b) { return ka_fmod<int64_t>(a, b); }
KA_FN int64_t ka_remainder(int64_t a, int64_t b) { return ka_remainder<int64_t>(a, b); }
KA_FN int64_t ka_floor_divide(int64_t a, int64_t b) { return ka_floor_divide<int64_t>(a, b); }
KA_FN int64_t ka_pow(int64_t a, int64_t n) { return ka_pow<int64_t>(a, n); }
template <class T> KA_FN T ka_nan_to_num(T x, T nan, T high, T low) {
  return x != x ? nan : (x == T(INFINITY) ? high : (x == T(-INFINITY) ? low : x));
}
template <class T> KA_FN T ka_frac(T x) { return x - ka_trunc(x); }
template <class T> KA_FN T ka_huber(T x, T delta) {
  const T z = ka_abs(x);
  return z < delta ? T(0.5) * z * z : delta * (z - T(0.5) * delta);
}
template <class T> KA_FN T ka_smooth_l1(T x, T beta) {
  const T z = ka_abs(x);
  return z < beta ? T(0.5) * z * z / beta : z - T(0.5) * beta;
}
template <class T> KA_FN T ka_xlogy(T x, T y) { return y != y ? y : (x == T(0) ? T(0) : x * ka_log(y)); }
// The logarithms are at least -100, as in PyTorch.
template <class T> KA_FN T ka_cross_entropy(T x, T y) {
  return (y - T(1)) * ka_max(ka_log1p(-x), T(-100)) - y * ka_max(ka_log(x), T(-100));
}
// A nan on one side loses.
template <class T> KA_FN T ka_fmax(T a, T b) { return (a >= b) | (b != b) ? a : b; }
template <class T> KA_FN T ka_fmin(T a, T b) { return (a <= b) | (b != b) ? a : b; }
// log(e^a + e^b) = max + log(1 + e^-|a - b|), where two infinities of one sign leave no difference.
template <class T> KA_FN T ka_logaddexp(T a, T b) {
  return ka_max(a, b) + ka_log1p_unit(ka_exp(a == b ? T(0) : -ka_abs(a - b)));
}
template <class T> KA_FN T ka_logaddexp2(T a, T b) {
  const T apart = a == b ? T(0) : -ka_abs(a - b) * T(0.69314718055994530942);
  return ka_max(a, b) + ka_log1p_unit(ka_exp(apart)) * T(1.44269504088896340736);
}
// log(x + √(x² + 1)) = log(1 + x + x²/(1 + √(x² + 1))); of what is large the square would overflow.
template <class T> KA_FN T ka_asinh(T x) {
  const T a = ka_abs(x), near = ka_log1p(a + a * a / (T(1) + ka_sqrt(a * a + T(1))));
  return ka_copysign(a > T(1e9) ? ka_log(a) + T(0.69314718055994530942) : near, x);
}
template <class T> KA_FN T ka_acosh(T x) {
  const T above = x - T(1), near = ka_log1p(above + ka_sqrt(above) * ka_sqrt(above + T(2)));
  return x > T(1e9) ? ka_log(x) + T(0.69314718055994530942) : near;
}
template <class T> KA_FN T ka_atanh(T x) {
  const T a = ka_abs(x);
  return ka_copysign(T(0.5) * ka_log1p(T(2) * a / (T(1) - a)), x);
}
template <class T> KA_FN T ka_heaviside(T x, T at_zero) { return x == T(0) ? at_zero : x > T(0) ? T(1) : T(0); }
template <class T> KA_FN T ka_sinc(T x) {
  const T turned = x * T(3.14159265358979323846);
  return x == T(0) ? T(1) : ka_sin(turned) / turned;
}
// Of a real number: 0 or π.
template <class T> KA_FN T ka_angle(T x) { return x != x ? x : x < T(0) ? T(3.14159265358979323846) : T(0); }
// Value and position in one number: the largest key has the largest value, a NaN above all, and the first position.
KA_FN int64_t ka_key(int64_t x, int64_t at) { return x * 4294967296 + (4294967295 - at); }
KA_FN int64_t ka_key(float x, int64_t at) {
  const int32_t bits = ka_as_int(x + 0.0f);
  return ka_key((int64_t)(x != x ? INT32_MAX : bits ^ ((bits >> 31) & INT32_MAX)), at);
}
KA_FN int64_t ka_key_place(int64_t key) { return 4294967295 - (key & 4294967295); }
// frexp: x is its mantissa, from 0.5 to 1, times 2 to its exponent.
KA_FN float ka_mantissa(float x) { int power = 0; return frexpf(x, &power); }
KA_FN double ka_mantissa(double x) { int power = 0; return frexp(x, &power); }
KA_FN int64_t ka_exponent(float x) { int power = 0; frexpf(x, &power); return x - x == 0.0f ? power : 0; }
KA_FN int64_t ka_exponent(double x) { int power = 0; frexp(x, &power); return x - x == 0.0 ? power : 0; }
KA_FN float ka_nextafter(float x, float to) { return nextafterf(x, to); }
KA_FN double ka_nextafter(double x, double to) { return nextafter(x, to); }
// The modified Bessel function of order 0: of doubles its power series, from 30 on its asymptotic one; of floats the
// Chebyshev series of Cephes (i0f), one for up to 8 and one for 8 / x.
KA_FN double ka_i0(double x) {
  const double y = x < 0.0 ? -x : x;
  double term = 1.0, sum = 1.0;
  if (y < 30.0) {
    for (int k = 1; k < 80 && term > sum * 1e-17; ++k) {
      term *= y * y / (4.0 * k * k);
      sum += term;
    }
    return sum;
  }
  for (int k = 1; k < 30 && term > 1e-17; ++k) {
    term *= (2.0 * k - 1.0) * (2.0 * k - 1.0) / (8.0 * k * y);
    sum += term;
  }
  // Half of the exponent twice: exp(y) overflows where the result does not.
  return exp(y / 2.0) * (sum / sqrt(6.28318530717958647693 * y)) * exp(y / 2.0);
}
template <int N> KA_FN float ka_chebyshev(float x, const float (&terms)[N]) {
  float now = terms[0], last = 0.0f, before = 0.0f;
  for (int n = 1; n < N; ++n) {
    before = last;
    last = now;
    now = x * last - before + terms[n];
  }
  return 0.5f * (now - before);
}
KA_FN float ka_i0(float x) {
  const float y = x < 0.0f ? -x : x;
  const float near[] = {-1.30002501e-8f, 6.04699502e-8f, -2.67079385e-7f, 1.11738754e-6f, -4.41673836e-6f, 1.64484481e-5f,
                        -5.75419501e-5f, 1.88502885e-4f, -5.76375575e-4f, 1.63947562e-3f, -4.32430999e-3f, 1.05464604e-2f,
                        -2.37374148e-2f, 4.93052842e-2f, -9.49010970e-2f, 1.71620902e-1f, -3.04682672e-1f, 6.76795274e-1f};
  const float far[] = {3.39623203e-9f, 2.26666899e-8f, 2.04891859e-7f, 2.89137052e-6f,
                       6.88975835e-5f, 3.36911648e-3f, 8.04490411e-1f};
  if (y <= 8.0f) return ka_exp(y) * ka_chebyshev(y / 2.0f - 2.0f, near);
  const float half = ka_exp(y / 2.0f);
  return half * (ka_chebyshev(32.0f / y - 2.0f, far) / ka_sqrt(y)) * half;
}
// The derivative of lgamma: from 10 on its asymptotic series, below by psi(x) = psi(x + 1) - 1 / x, of negative numbers by
// reflection. At 0 it is infinite, at negative whole numbers no number, as in PyTorch.
template <class T> KA_FN T ka_digamma(T x) {
  if (x == T(0)) return x + T(1) / x < T(0) ? T(INFINITY) : T(-INFINITY);
  T sum = T(0);
  if (x < T(0)) {
    const T part = x - ka_trunc(x);
    if (part == T(0)) return T(NAN);
    sum = T(-3.14159265358979323846 / tan(3.14159265358979323846 * (double)part));
    x = T(1) - x;
  }
  while (x < T(10)) {
    sum -= T(1) / x;
    x += T(1);
  }
  const T z = T(1) / (x * x);
  T y = T(8.33333333333333333333e-2);
  y = y * z - T(2.10927960927960927961e-2);
  y = y * z + T(7.57575757575757575758e-3);
  y = y * z - T(4.16666666666666666667e-3);
  y = y * z + T(3.96825396825396825397e-3);
  y = y * z - T(8.33333333333333333333e-3);
  y = y * z + T(8.33333333333333333333e-2);
  return x < T(1e17) ? sum + ka_log(x) - T(0.5) / x - z * y : sum + ka_log(x);
}
