torch::Tensor twice(torch::Tensor x) {
  auto o = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* out = o.data_ptr<float>();
  #pragma omp parallel for simd if (x.numel() > 32768)
  for (int64_t i = 0; i < x.numel(); i++) out[i] = 2.0f * in[i] + 1.0f;
  return o;
}
