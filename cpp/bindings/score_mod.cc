#include "score_mod.h"

#include <emscripten/em_js.h>

// Numbers only: an object made here would be of another kind than the ones the
// package makes.
EM_JS(void, headwise_score_tile,
      (double entry, double head, double row, double query_position,
       double key_position, double rows, double keys, double scores,
       double row_stride),
      {
        Module['scoreTile'](entry, head, row, query_position, key_position,
                            rows, keys, scores, row_stride);
      });

namespace headwise {
namespace bindings {

void CallScoreMod(void*, const ScoreTile& tile) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  headwise_score_tile(number(tile.entry), number(tile.head), number(tile.row),
                      number(tile.query_position), number(tile.key_position),
                      number(tile.rows), number(tile.keys),
                      number(reinterpret_cast<uintptr_t>(tile.scores)),
                      number(tile.row_stride));
}

}  // namespace bindings
}  // namespace headwise
