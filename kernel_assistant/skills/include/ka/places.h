// Sizes of images and positions in them, the same for both targets. Comes with `ka/window` and `ka/index`, behind the
// target's own header.
#pragma once

namespace ka {

// Sizes of the input and the output (depth, height, width) and the padding.
struct shape {
  int d, h, w, od, oh, ow, pd, ph, pw;
};

// Numbers of a window, outermost dimension first, as torch has them: `ka::window<ka::list<3, 3>, ka::list<2, 2>>`.
template <int... N> struct list {
  static constexpr int count = sizeof...(N);
  // Counted from the end; `none` where there is none.
  KA_FN constexpr int last(int back, int none = 1) {
    const int all[] = {none, N...};
    return back < count ? all[count - back] : none;
  }
};
template <class A, class B> struct either {
  using of = A;
};
template <class B> struct either<list<>, B> {
  using of = B;
};
// Sizes of a window's input and output with all their dimensions, `ka::list<…>` of the padding.
template <class K, class P, int R> KA_FN shape shape_within(const int64_t (&in)[R], const int64_t (&out)[R]) {
  static_assert(K::count <= 3 && K::count <= R, "windows have one to three dimensions, the last of the tensor's");
  const auto at = [](const int64_t (&sizes)[R], int back) {
    return back < K::count ? (int)sizes[R - 1 - back] : 1;
  };
  return {at(in, 2),  at(in, 1),  at(in, 0),     at(out, 2),    at(out, 1),
          at(out, 0), P::last(2, 0), P::last(1, 0), P::last(0, 0)};
}
// How many windows lie beside each other in the dimensions before: batch and channels.
template <class K, int R> KA_FN int64_t planes_of(const int64_t (&in)[R]) {
  int64_t count = 1;
  for (int dim = 0; dim + K::count < R; ++dim) count *= in[dim];
  return count;
}
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
