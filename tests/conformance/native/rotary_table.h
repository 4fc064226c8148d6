// The inputs cos_cache and sin_cache as a table of the library.
#ifndef HEADWISE_TESTS_CONFORMANCE_NATIVE_ROTARY_TABLE_H_
#define HEADWISE_TESTS_CONFORMANCE_NATIVE_ROTARY_TABLE_H_

#include <cstddef>
#include <vector>

#include "case_file.h"
#include "headwise/headwise.h"

namespace headwise {
namespace conformance {

class RotaryTables {
 public:
  // Of rank 2 [positions, R/2] or 3 [B, L, R/2], whose rows are positions
  // b*L + i. Of a wider table the first `half_dim` columns are taken.
  RotaryTables(Case* c, size_t half_dim, bool interleaved);

  RotaryTable table() const;

 private:
  std::vector<float> cos_, sin_;
  size_t rows_ = 0;
  size_t half_dim_ = 0;
  bool interleaved_ = false;
};

}  // namespace conformance
}  // namespace headwise

#endif  // HEADWISE_TESTS_CONFORMANCE_NATIVE_ROTARY_TABLE_H_
