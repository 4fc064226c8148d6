// The public C++ surface from a user's build: one layer, one forward call.
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "headwise/headwise.h"

int main() {
  headwise::Config config;
  config.embed_dim = 24;
  config.num_heads = 4;
  std::unique_ptr<headwise::MultiHeadAttention> mha;
  headwise::Status status = headwise::MultiHeadAttention::Create(config, &mha);
  if (!status.ok()) {
    std::fprintf(stderr, "create: %s\n", status.message());
    return 1;
  }
  const size_t length = 5;
  std::vector<float> x(length * 24, 0.5f), y(x.size(), NAN);
  const headwise::TensorView<const float> input(x.data(), 1, length, 24);
  headwise::ForwardOutputs outputs;
  outputs.output = headwise::TensorView<float>(y.data(), 1, length, 24);
  headwise::Workspace workspace;
  status = mha->Forward(input, input, input, {}, outputs, &workspace);
  if (!status.ok()) {
    std::fprintf(stderr, "forward: %s\n", status.message());
    return 1;
  }
  for (const float value : y) {
    if (!std::isfinite(value)) return 1;
  }
  std::printf("headwise %s on %s\n", headwise::Version(),
              headwise::SimdTarget());
  return 0;
}
