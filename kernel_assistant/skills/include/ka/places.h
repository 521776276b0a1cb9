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
