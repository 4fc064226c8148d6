// A score_mod that lives in JavaScript.
#ifndef HEADWISE_BINDINGS_SCORE_MOD_H_
#define HEADWISE_BINDINGS_SCORE_MOD_H_

#include "headwise/attention.h"

namespace headwise {
namespace bindings {

// Hands a tile to the module's scoreTile, which the caller sets for the time of
// the call. It must not throw: an exception would leave this module's stack
// where it is.
void CallScoreMod(void* context, const ScoreTile& tile);

}  // namespace bindings
}  // namespace headwise

#endif  // HEADWISE_BINDINGS_SCORE_MOD_H_
