// Pooling windows of one to three dimensions: a thread has R outputs below each other, so that rows of the input which
// their windows share are read once. Neighbouring threads have neighbouring outputs.
//
//   using window = ka::window<ka::list<3, 3>, ka::list<2, 2>, ka::list<1, 1>>;   // kernel, stride, padding, dilation
//   window::run<2, ka::max>({a.b, a.c, a.h, a.w}, {a.b, a.c, a.oh, a.ow},
//       [](float x) { return x; }, [](float m, int) { return m; }, a.out0, a.x0);
//                                                               // plan: grid cdiv(b · c · cdiv(oh, 2) · ow, 256)
//
// The second function gets the result and how many positions of the window were inside the input: an average is
// `sum / count`, or `sum / ka::cells<3, 3>` where padding counts. A window with no position inside gives the operator's neutral value.
// Further operands, behind the input, are its further arguments: pointers of the output's shape, or one of
// `ka::channel(p, C)`: p[plane % C].
#pragma once
#include "ka/reduce.cuh"
#include "ka/places.h"

namespace ka {

template <class T> KA_FN auto beside(const T* p, int64_t at, int64_t) { return ka_get(p[at]); }
template <class T> KA_FN auto beside(const channel_of<T>& c, int64_t, int64_t plane) {
  return ka_get(c.p[plane >> 32 ? plane % c.size : (uint32_t)plane % (uint32_t)c.size]);
}

// Kernel, stride and dilation of each dimension.
template <int KD, int KH, int KW, int SD, int SH, int SW, int DD = 1, int DH = 1, int DW = 1> struct pool {
  template <int R, class OP, class C = float, class F, class G, class T, class U, class... O>
  KA_FN void run(int64_t planes, const shape& s, F before, G after, U* out, const T* in, O... more) {
    const int64_t bands = (s.oh + R - 1) / R, count = planes * s.od * bands * s.ow;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (int64_t)gridDim.x * blockDim.x) {
      const uint32_t narrow = (uint32_t)at;
      const bool wide = at >> 32;
      const int64_t above = wide ? at / s.ow : narrow / (uint32_t)s.ow;
      const int64_t slab = bands == 1 ? above : above >> 32 ? above / bands : (uint32_t)above / (uint32_t)bands;
      const int64_t plane = s.od == 1 ? slab : slab >> 32 ? slab / s.od : (uint32_t)slab / (uint32_t)s.od;
      const int x = (int)(at - above * s.ow), y = (int)(above - slab * bands) * R, z = (int)(slab - plane * s.od);
      band<R, OP, C>(s, plane, z, y, x, before, after, out, in, more...);
    }
  }
  template <int R, class OP, class C, class F, class G, class T, class U, class... O>
  KA_FN void band(const shape& s, int64_t plane, int z, int y, int x, F before, G after, U* out, const T* in, O... more) {
    C total[R];
    int inside[R];
#pragma unroll
    for (int r = 0; r < R; ++r) total[r] = neutral<OP, C>::value(), inside[r] = 0;
    const int x0 = x * SW - s.pw, y0 = y * SH - s.ph;
    // Most windows lie inside the line: nothing to ask for each element.
    const bool whole = x0 >= 0 && x0 + (KW - 1) * DW < s.w;
    const T* corner = in + ((plane * s.d + z * SD - s.pd) * s.h + y0) * s.w + x0;
#pragma unroll
    for (int k = 0; k < KD; ++k) {
      const int iz = z * SD - s.pd + k * DD;
      if (iz < 0 || iz >= s.d) continue;
#pragma unroll
      for (int row = 0; row <= (R - 1) * SH + (KH - 1) * DH; ++row) {
        if (!any<R>(row) || y0 + row < 0 || y0 + row >= s.h) continue;
        const T* line = corner + ((int64_t)k * DD * s.h + row) * s.w;
        C part = neutral<OP, C>::value();
        int found = KW;
        if (whole) {
#pragma unroll
          for (int j = 0; j < KW; ++j) part = OP::join(part, (C)before((C)ka_get(line[j * DW])));
        } else {
          found = 0;
#pragma unroll
          for (int j = 0; j < KW; ++j) {
            if (x0 + j * DW < 0 || x0 + j * DW >= s.w) continue;
            part = OP::join(part, (C)before((C)ka_get(line[j * DW])));
            ++found;
          }
        }
#pragma unroll
        for (int r = 0; r < R; ++r) {
          if (!covers(row - r * SH)) continue;
          total[r] = OP::join(total[r], part);
          inside[r] += found;
        }
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int64_t at = ((plane * s.od + z) * s.oh + y + r) * s.ow + x;
      if (y + r < s.oh) ka_put(out[at], after(total[r], inside[r], beside(more, at, plane)...));
    }
  }
  // Whether the window of an output reads the row that lies `row` below its first.
  KA_FN constexpr bool covers(int row) { return row >= 0 && row <= (KH - 1) * DH && row % DH == 0; }
  template <int R> KA_FN constexpr bool any(int row) {
    for (int r = 0; r < R; ++r)
      if (covers(row - r * SH)) return true;
    return false;
  }
};
// From lists as torch has them, for any number of dimensions: kernel, stride (the kernel's where it is empty), padding,
// dilation.
template <class K, class S = list<>, class P = list<>, class D = list<>> struct window {
  using step = typename either<S, K>::of;
  using windows = pool<K::last(2), K::last(1), K::last(0), step::last(2), step::last(1), step::last(0), D::last(2), D::last(1), D::last(0)>;
  template <int R, class OP, class C = float, int N, class F, class G, class T, class U, class... O>
  KA_FN void run(const int64_t (&sizes)[N], const int64_t (&results)[N], F before, G after, U* out, const T* in, O... more) {
    windows::template run<R, OP, C>(planes_of<K>(sizes), shape_within<K, P>(sizes, results), before, after, out, in, more...);
  }
};

}  // namespace ka
