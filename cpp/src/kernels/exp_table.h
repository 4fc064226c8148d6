// Constants of the exponential, in memory on purpose.
#ifndef HEADWISE_SRC_KERNELS_EXP_TABLE_H_
#define HEADWISE_SRC_KERNELS_EXP_TABLE_H_

namespace headwise {
namespace kernels {

// V8 makes a vector constant anew, in several instructions, wherever it is
// used, loops included: a loop of multiply-adds with two constant operands ran
// at 11 instead of 58 GFLOP/s in Node 24 (tests/bench/peak.cc). A broadcast
// from memory is one instruction. Defined in a file of its own, and not const,
// so that no compiler folds the values back in.
struct ExpTable {
  float log2e;
  float magic;
  float minus_ln2_high;
  float minus_ln2_low;
  float c6, c5, c4, c3, c2;
  float one;
  float smallest;
};
extern ExpTable exp_table;

}  // namespace kernels
}  // namespace headwise

#endif  // HEADWISE_SRC_KERNELS_EXP_TABLE_H_
