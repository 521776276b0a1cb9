// CPU: out[i][j]… = f(i, j, …): for what stands elsewhere in the input (permuted, rolled, padded, joined, gathered).
//
//   ka::fill(a->out0, [=](int64_t b, int64_t i, int64_t j) { return ka_get(a->x0[(b * 3 + j) * 5 + i]); }, a->b, 5, 3);
//
// The loop over the last index is one of vectors where f allows it.
// `ka::at(i, n)`: the position that an index means; a negative one counts from the end, one outside is moved inside.
// `ka::inside(i, n)`: whether there is one. `ka::mirror(i, n)`, `ka::around(i, n)`: where a padded one is read instead.
#pragma once
#include <utility>
#include "ka/pointwise.h"
#include "ka/places.h"

namespace ka {

template <class R, class F, std::size_t... J>
KA_FN void fill_piece(R to, F& f, const int64_t* above, int64_t from, int64_t n, std::index_sequence<J...>) {
#pragma omp simd
  for (int64_t k = 0; k < n; ++k) to.set(k, f(above[J]..., from + k));
  to.done(n);
}
template <class T, class F, class... N> KA_FN void fill(T* out, F f, N... sizes) {
  constexpr int R = sizeof...(N);
  const int64_t size[R] = {sizes...}, n = ((int64_t)1 * ... * sizes), last = size[R - 1];
  const int64_t lines = last ? n / last : 0, pieces = (last + piece - 1) / piece, many = 1 + 4096 / (last + 1);
#pragma omp parallel for schedule(static) if (n >= alone)
  for (int64_t block = 0; block < (lines * pieces + many - 1) / many; ++block) {
    int64_t above[R], line = block * many / pieces;
    for (int d = R - 2; d >= 0; line /= size[d--]) above[d] = line % size[d];
    for (int64_t c = block * many; c < (block + 1) * many && c < lines * pieces; ++c) {
      const int64_t from = c % pieces * piece, count = last - from < piece ? last - from : piece;
      fill_piece(result<T>::at(out + c / pieces * last + from), f, above, from, count, std::make_index_sequence<R - 1>());
      if (from + count < last) continue;
      for (int d = R - 2; d >= 0 && ++above[d] == size[d]; --d) above[d] = 0;
    }
  }
}

}  // namespace ka
