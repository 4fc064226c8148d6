// Initial weights.
#ifndef HEADWISE_SRC_INIT_H_
#define HEADWISE_SRC_INIT_H_

#include <cstddef>
#include <cstdint>

namespace headwise {

// A reproducible source of uniform numbers: SplitMix64 (Steele, Lea, Flood
// 2014), whose whole state is one word.
class UniformSource {
 public:
  explicit UniformSource(uint64_t seed) : state_(seed) {}
  // In [-bound, bound).
  float Next(float bound);
  // From the standard normal distribution (Box and Muller 1958).
  float NextNormal();
  void Fill(float bound, size_t count, float* values);

 private:
  uint64_t state_;
};

}  // namespace headwise

#endif  // HEADWISE_SRC_INIT_H_
