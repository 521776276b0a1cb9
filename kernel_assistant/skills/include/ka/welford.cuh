// Mean and variance without cancellation, in one pass: count, mean and Σ(x − mean)², joined by Chan's formula.
//
//   ka::sums<float> mine;
//   for (…) mine.add(x);                                   // relative to the thread's first element
//   const auto all = ka::block_moments<256>(mine);
//   const float scale = rsqrtf(ka::variance(all) + eps);   // biased; ka::variance(all, 1) divides by n − 1
#pragma once
#include "ka/reduce.cuh"

namespace ka {

using chan = ka_chan;
template <class C> using moments = ka_moments<C>;
template <class C> using sums = ka_moments_of<C>;

template <int THREADS, class C> KA_FN moments<C> block_moments(const sums<C>& mine) {
  return block_reduce<THREADS, chan>(mine.done());
}
template <class C> KA_FN C variance(const moments<C>& of, int correction = 0) {
  return of.m2 / (of.count - C(correction));
}

}  // namespace ka
