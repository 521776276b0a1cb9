__global__ void kernel(const float* x, float* o, int64_t count) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < count) o[i] = 2.0f * x[i] + 1.0f;
}
torch::Tensor twice(torch::Tensor x) {
  auto o = torch::empty_like(x);
  kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), o.data_ptr<float>(), x.numel());
  return o;
}
