// The smallest workload called in a loop inside WASM: what a call from
// JavaScript costs beyond this is overhead.
#include <cstdint>
#include <memory>
#include <vector>

#include "headwise/headwise.h"

extern "C" {

// Runs W8 (L = 16, E = 64, H = 4) `rounds` times; the first output, or NaN
// after an error.
__attribute__((export_name("Tiny"))) float Tiny(int32_t rounds) {
  constexpr int kLength = 16, kEmbedDim = 64, kHeads = 4;
  static std::unique_ptr<headwise::MultiHeadAttention> layer;
  static headwise::Workspace workspace;
  static std::vector<float> x(kLength * kEmbedDim, 0.5f);
  static std::vector<float> y(kLength * kEmbedDim);
  headwise::Status status;
  if (layer == nullptr) {
    const headwise::Config config{kEmbedDim, kHeads};
    status = headwise::MultiHeadAttention::Create(config, &layer);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 0.01f * (i % 97) - 0.5f;
  }
  const headwise::TensorView<const float> input(x.data(), kLength, kEmbedDim);
  for (int32_t i = 0; i < rounds && status.ok(); ++i) {
    status = layer->Forward(input, input, input, {},
                            {{y.data(), kLength, kEmbedDim}}, &workspace);
  }
  return status.ok() ? y[0] : __builtin_nanf("");
}

}  // extern "C"
