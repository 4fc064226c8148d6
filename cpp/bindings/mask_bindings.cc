// Block masks by their JavaScript names.
#include <emscripten/bind.h>

#include <memory>

#include "call_blocks.h"
#include "headwise/block_mask.h"
#include "module_state.h"

namespace headwise {
namespace bindings {
namespace {

// bits: uint32 [batch, heads, queries, ceil(keys / 32)].
std::unique_ptr<BlockMask> CreateMask(double batch, double heads,
                                      double first_query, double queries,
                                      double keys, double bits) {
  BlockMaskShape shape;
  shape.batch = Size(batch);
  shape.heads = Size(heads);
  shape.first_query = static_cast<int64_t>(first_query);
  shape.queries = Size(queries);
  shape.keys = Size(keys);
  std::unique_ptr<BlockMask> made;
  Keep(BlockMask::FromBits(shape, At<const uint32_t>(bits), &made));
  return made;
}

// For the slot of an attention block.
double Address(const BlockMask& self) {
  return static_cast<double>(reinterpret_cast<uintptr_t>(&self));
}
double Bytes(const BlockMask& self) {
  return static_cast<double>(self.bytes());
}
double EmptyBlocks(const BlockMask& self) {
  return static_cast<double>(self.empty_blocks());
}
double FullBlocks(const BlockMask& self) {
  return static_cast<double>(self.full_blocks());
}
double PartialBlocks(const BlockMask& self) {
  return static_cast<double>(self.partial_blocks());
}

}  // namespace

EMSCRIPTEN_BINDINGS(headwise_masks) {
  using emscripten::class_;
  class_<BlockMask>("BlockMask")
      .class_function("create", &CreateMask)
      .function("address", &Address)
      .function("bytes", &Bytes)
      .function("emptyBlocks", &EmptyBlocks)
      .function("fullBlocks", &FullBlocks)
      .function("partialBlocks", &PartialBlocks);
}

}  // namespace bindings
}  // namespace headwise
