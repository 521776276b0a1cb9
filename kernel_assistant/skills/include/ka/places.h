// Sizes of images and positions in them, the same for both targets. Comes with `ka/window` and `ka/index`, behind the
// target's own header.
#pragma once

namespace ka {

// Sizes of the input and the output (depth, height, width) and the padding.
struct shape {
  int d, h, w, od, oh, ow, pd, ph, pw;
};
KA_FN shape shape1d(int64_t w, int64_t ow, int pw) { return {1, 1, (int)w, 1, 1, (int)ow, 0, 0, pw}; }
KA_FN shape shape2d(int64_t h, int64_t w, int64_t oh, int64_t ow, int ph, int pw) {
  return {1, (int)h, (int)w, 1, (int)oh, (int)ow, 0, ph, pw};
}
KA_FN shape shape3d(int64_t d, int64_t h, int64_t w, int64_t od, int64_t oh, int64_t ow, int pd, int ph, int pw) {
  return {(int)d, (int)h, (int)w, (int)od, (int)oh, (int)ow, pd, ph, pw};
}
// The same for any number of dimensions, outermost first: `shape_of({h, w}, {oh, ow}, {ph, pw})`, `shape_of({w}, {ow})`.
template <int R> KA_FN shape shape_of(const int64_t (&in)[R], const int64_t (&out)[R], const int64_t (&pad)[R]) {
  const auto at = [](const int64_t (&sizes)[R], int back, int none) {
    return back < R ? (int)sizes[back < R ? R - 1 - back : 0] : none;
  };
  return {at(in, 2, 1),  at(in, 1, 1),  at(in, 0, 1),  at(out, 2, 1), at(out, 1, 1),
          at(out, 0, 1), at(pad, 2, 0), at(pad, 1, 0), at(pad, 0, 0)};
}
template <int R> KA_FN shape shape_of(const int64_t (&in)[R], const int64_t (&out)[R]) {
  const int64_t none[R] = {};
  return shape_of(in, out, none);
}

// Numbers of a window, outermost dimension first: `ka::pool_of<ka::list<3, 3>, ka::list<2, 2>>`.
template <int... N> struct list {
  // Counted from the end; 1 where there is none.
  KA_FN constexpr int last(int back) {
    const int all[] = {1, N...}, n = sizeof...(N);
    return back < n ? all[n - back] : 1;
  }
};
// How many positions a window has: `ka::cells<3, 3>` is 9.
template <int... N> constexpr int cells = (1 * ... * N);

// One value for each of `size` channels; planes are [batch][channel].
template <class T> struct channel_of {
  const T* p;
  int64_t size;
};
template <class T> KA_FN channel_of<T> channel(const T* p, int64_t size) { return {p, size}; }

// Positions; see `ka/index`.
KA_FN int64_t at(int64_t i, int64_t n) { return ka_clamp(i < 0 ? i + n : i, (int64_t)0, n - 1); }
KA_FN bool inside(int64_t i, int64_t n) { return (uint64_t)i < (uint64_t)n; }
KA_FN int64_t mirror(int64_t i, int64_t n) { return i < 0 ? -i : i < n ? i : 2 * n - 2 - i; }
KA_FN int64_t around(int64_t i, int64_t n) { return i < 0 ? i + n : i < n ? i : i - n; }

}  // namespace ka
