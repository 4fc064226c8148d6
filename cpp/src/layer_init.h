// The weights a layer starts with.
#ifndef HEADWISE_SRC_LAYER_INIT_H_
#define HEADWISE_SRC_LAYER_INIT_H_

#include <memory>

#include "extra_keys.h"
#include "headwise/config.h"
#include "headwise/multi_head_attention.h"

namespace headwise {

// PyTorch's: Xavier uniform over the packed [3E, E] in-projection where the
// three have one input width, over each projection elsewhere; the output
// projection keeps nn.Linear's U(-1/sqrt(n), 1/sqrt(n)); biases 0; bias_k and
// bias_v Xavier normal.
Status MakeProjections(const Config& config,
                       ProjectionSet<std::unique_ptr<Linear>>* projections,
                       std::unique_ptr<ExtraKeys>* extra);

}  // namespace headwise

#endif  // HEADWISE_SRC_LAYER_INIT_H_
