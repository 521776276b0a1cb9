// CPU: pooling windows of one to three dimensions, a line of the output at a time, vectorised along it.
//
//   using window = ka::window<ka::list<3, 3>, ka::list<2, 2>, ka::list<1, 1>>;   // kernel, stride, padding, dilation
//   window::run<ka::max>({a->b, a->c, a->h, a->w}, {a->b, a->c, a->oh, a->ow},
//       [](float x) { return x; }, [](float m, int) { return m; }, a->out0, a->x0);
//
// The second function gets the result and how many positions of the window were inside the input: an average is
// `sum / count`, or `sum / ka::cells<3, 3>` where padding counts. A window with no position inside gives the operator's neutral value.
// Further operands, behind the input, are its further arguments: pointers of the output's shape, or one of
// `ka::channel(p, C)`: p[plane % C].
#pragma once
#include "ka/rows.h"
#include "ka/places.h"

namespace ka {

// An operand along a line of the output that begins at element `at`.
template <class T> struct constant_of {
  T value;
  T operator[](int64_t) const { return value; }
};
template <class T> KA_FN operand<T> beside(const T* p, int64_t at, int64_t, int64_t n) {
  return operand<T>::at(p + at, n);
}
template <class T> KA_FN auto beside(const channel_of<T>& c, int64_t, int64_t plane, int64_t) {
  const auto value = ka_get(c.p[plane % c.size]);
  return constant_of<decltype(+value)>{value};
}

// Kernel, stride and dilation of each dimension.
template <int KD, int KH, int KW, int SD, int SH, int SW, int DD = 1, int DH = 1, int DW = 1> struct pool {
  template <class OP, class F, class G, class T, class U, class... O>
  KA_FN void run(int64_t planes, const shape& s, F before, G after, U* out, const T* in, const O&... more) {
    const int64_t lines = planes * s.od * s.oh;
#pragma omp parallel for schedule(static) if (lines * s.ow * (KD * KH * KW) >= alone)
    for (int64_t at = 0; at < lines; ++at)
      for (int x = 0; x < s.ow; x += piece) line<OP>(s, at, x, before, after, out, in, more...);
  }
  // Outputs x … x + piece of line `at` of all lines.
  template <class OP, class F, class G, class T, class U, class... O>
  KA_FN void line(const shape& s, int64_t at, int x, F before, G after, U* out, const T* in, const O&... more) {
    const int y0 = (int)(at % s.oh) * SH - s.ph, z0 = (int)(at / s.oh % s.od) * SD - s.pd;
    const int64_t plane = at / s.oh / s.od, first = at * s.ow + x;
    const int n = s.ow - x < piece ? s.ow - x : piece;
    float total[piece];
    for (int k = 0; k < n; ++k) total[k] = OP::template none<float>();
    int found = 0;
    for (int k = 0; k < KD; ++k) {
      if (z0 + k * DD < 0 || z0 + k * DD >= s.d) continue;
      for (int j = 0; j < KH; ++j) {
        if (y0 + j * DH < 0 || y0 + j * DH >= s.h) continue;
        const T* from = in + ((plane * s.d + z0 + k * DD) * s.h + y0 + j * DH) * s.w;
        for (int i = 0; i < KW; ++i) join<OP>(total, n, from, x, i * DW - s.pw, s.w, before);
        ++found;
      }
    }
    const bool whole = s.pw == 0 && (s.ow - 1) * SW + (KW - 1) * DW < s.w;
    store(n, total, after, [&](int k) { return found * (whole ? KW : across((x + k) * SW - s.pw, s.w)); },
          result<U>::at(out + first), beside(more, first, plane, n)...);
  }
  // total[k] takes in element (x + k) · SW + shift of a line of w, where it exists.
  template <class OP, class F, class T>
  KA_FN void join(float* total, int n, const T* from, int x, int shift, int w, F before) {
    const int low = shift < 0 ? (-shift + SW - 1) / SW - x : -x, high = w > shift ? (w - shift + SW - 1) / SW - x : 0;
    const int begin = low > 0 ? low : 0, end = high < n ? high : n;
    const T* p = from + (int64_t)x * SW + shift;
#pragma omp simd
    for (int k = begin; k < end; ++k) total[k] = OP::join(total[k], (float)before((float)ka_get(p[k * SW])));
  }
  // How many positions of a window that begins at `first` are inside a line of w.
  KA_FN int across(int first, int w) {
    int count = 0;
    for (int i = 0; i < KW; ++i) count += (first + i * DW >= 0) & (first + i * DW < w);
    return count;
  }
  template <class G, class COUNT, class R, class... O>
  KA_FN void store(int n, const float* total, G after, COUNT count, R to, const O&... more) {
#pragma omp simd
    for (int k = 0; k < n; ++k) to.set(k, after(total[k], count(k), more[k]...));
    to.done(n);
  }
};
// From lists as torch has them, for any number of dimensions: kernel, stride (the kernel's where it is empty), padding,
// dilation.
template <class K, class S = list<>, class P = list<>, class D = list<>> struct window {
  using step = typename either<S, K>::of;
  using windows = pool<K::last(2), K::last(1), K::last(0), step::last(2), step::last(1), step::last(0), D::last(2), D::last(1), D::last(0)>;
  template <class OP, int N, class F, class G, class T, class U, class... O>
  KA_FN void run(const int64_t (&sizes)[N], const int64_t (&results)[N], F before, G after, U* out, const T* in, const O&... more) {
    windows::template run<OP>(planes_of<K>(sizes), shape_within<K, P>(sizes, results), before, after, out, in, more...);
  }
};

}  // namespace ka
