// The seam for threads. Today one thread runs all tasks, in rising order, and
// attention counts on both: its tasks share one scratch, and the mean of the
// weights adds up heads in that order. Whoever adds threads gives each its
// scratch and makes the heads of one mean one task.
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
