// The seam for threads. Work is cut into independent tasks whose results do
// not depend on who runs them; today one thread runs all of them.
#ifndef HEADWISE_SRC_PARALLEL_H_
#define HEADWISE_SRC_PARALLEL_H_

#include <cstddef>

namespace headwise {

// Calls body(task) for every task in [0, count).
template <typename Body>
void ParallelFor(size_t count, const Body& body) {
  for (size_t task = 0; task < count; ++task) body(task);
}

}  // namespace headwise

#endif  // HEADWISE_SRC_PARALLEL_H_
