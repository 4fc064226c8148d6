// Where every tolerance of these tests comes from: bounds on the rounding
// error of float32, computed element by element from the numbers themselves.
//
// With u = 2^-24, a sum of n products loses at most n u sum|x y|; with
// probability next to 1 no more than 4 sqrt(n) u sum|x y| (Higham and Mary
// 2019). The bounds carry this through
//
//   score    scale q.k + bias             products, and errors of q and k
//   weight   exp(score - max) / total     relative: the score's error, its
//                                         mean over the row, exp, the sum
//   output   sum weight * value           relative to sum weight * |value|
//
// so that what is small must be right relative to its own size. No test has a
// tolerance of its own; a result that does not meet these is wrong.
#ifndef HEADWISE_TESTS_CPP_TOLERANCE_H_
#define HEADWISE_TESTS_CPP_TOLERANCE_H_

#include <cstddef>
#include <vector>

#include "headwise/attention.h"
#include "headwise/config.h"
#include "headwise/linear.h"
#include "headwise/multi_head_attention.h"
#include "headwise/tensor_view.h"
#include "reference/attention.h"
#include "reference/multi_head_attention.h"

namespace headwise {

// Unit roundoff of float32.
inline constexpr double kRoundoff = 0x1.0p-24;
// What exp is promised to keep, relative, down to the smallest normal number.
inline constexpr double kExpError = 2e-7;
// The same of softcap * tanh(x / softcap).
inline constexpr double kTanhError = 8.0 * kRoundoff;
// Results of exp below this may be 0.
inline constexpr double kSmallestNormal = 0x1.0p-126;

// Relative error of a float32 sum of `terms` products.
double SumError(size_t terms);

struct AttentionBounds {
  std::vector<double> raw;
  std::vector<double> capped;
  std::vector<double> scores;
  std::vector<double> row_max;
  std::vector<double> weights;
  std::vector<double> averaged_weights;
  std::vector<double> output;
  std::vector<double> lse;
};

// Errors that the inputs of an attention come with, in the inputs' shapes;
// empty views: none.
struct AttentionInputErrors {
  HeadsView<const double> query;
  HeadsView<const double> key;
  HeadsView<const double> value;
};

template <typename T>
AttentionBounds BoundAttention(const HeadsView<const T>& query,
                               const HeadsView<const T>& key,
                               const HeadsView<const T>& value,
                               const AttentionOptions& options,
                               const reference::AttentionResult& expected,
                               const AttentionInputErrors& errors = {});

// input_errors: as many as input elements, dense, or empty.
template <typename T>
std::vector<double> BoundLinear(const TensorView<const T>& input,
                                const LinearWeights& weights,
                                size_t out_features,
                                const std::vector<double>& input_errors = {});

// Errors of `x` [.., head_dim] after the norm of its rows, when it comes with
// `errors`.
std::vector<double> BoundNorm(const std::vector<double>& x, const float* weight,
                              double epsilon, size_t head_dim,
                              const std::vector<double>& errors);
// The same after turning the pairs of x [B, L, heads * head_dim].
std::vector<double> BoundRotary(const std::vector<double>& x,
                                const RotaryConfig& config, size_t head_dim,
                                const std::vector<double>& errors);

struct MultiHeadAttentionBounds {
  AttentionBounds attention;
  std::vector<double> concat;
  std::vector<double> output;
};

MultiHeadAttentionBounds BoundMultiHeadAttention(
    const Config& config, const Weights& weights,
    const TensorView<const float>& query, const TensorView<const float>& key,
    const TensorView<const float>& value, const LayerOptions& options,
    const reference::MultiHeadAttentionResult& expected);

}  // namespace headwise

#endif  // HEADWISE_TESTS_CPP_TOLERANCE_H_
