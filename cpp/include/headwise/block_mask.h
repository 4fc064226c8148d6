// A mask over positions, kept by blocks: blocks that nobody sees cost nothing,
// neither memory nor time, and blocks that everybody sees cost no masking.
#ifndef HEADWISE_BLOCK_MASK_H_
#define HEADWISE_BLOCK_MASK_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "headwise/status.h"

namespace headwise {

struct BlockMaskShape {
  // B, or 1 for a mask that is the same for every entry; H, or 1 likewise.
  size_t batch = 1;
  size_t heads = 1;
  // Positions that the mask knows: queries [first_query, first_query +
  // queries), keys [0, keys).
  int64_t first_query = 0;
  size_t queries = 0;
  size_t keys = 0;
};

// Immutable once made, so that calls may share it; it serves every call whose
// positions it knows.
class BlockMask {
 public:
  // Sides of a block: the query rows and the keys that a kernel takes at once.
  static constexpr size_t kQueries = 64;
  static constexpr size_t kKeys = 128;
  // kKeys bits of one query: bit j of word j / 64.
  using Bits = uint64_t[kKeys / 64];

  // visible(b, h, query position, key position) says who sees whom. It is
  // asked once for each. Errors of all three: kInvalidArgument, kOutOfMemory.
  template <typename Visible>
  static Status FromFunction(const BlockMaskShape& shape,
                             const Visible& visible,
                             std::unique_ptr<BlockMask>* out) {
    const RowSource source = {
        &visible, [](const void* context, size_t b, size_t h, size_t query,
                     const BlockMaskShape& of, size_t key, Bits bits) {
          const Visible& see = *static_cast<const Visible*>(context);
          const int64_t position = of.first_query + static_cast<int64_t>(query);
          for (size_t j = key; j < of.keys && j < key + kKeys; ++j) {
            if (see(b, h, position, static_cast<int64_t>(j))) {
              bits[(j - key) / 64] |= uint64_t{1} << (j - key) % 64;
            }
          }
        }};
    return Build(shape, source, out);
  }

  // map [batch, heads, ceil(queries / block_queries), ceil(keys / block_keys)],
  // not 0 = may attend: block-sparse attention.
  static Status FromBlocks(const BlockMaskShape& shape, const uint8_t* map,
                           size_t block_queries, size_t block_keys,
                           std::unique_ptr<BlockMask>* out);

  // bits [batch, heads, queries, ceil(keys / 32)]: bit j % 32 of word j / 32.
  static Status FromBits(const BlockMaskShape& shape, const uint32_t* bits,
                         std::unique_ptr<BlockMask>* out);

  ~BlockMask();

  const BlockMaskShape& shape() const { return shape_; }
  size_t bytes() const;
  // Of all blocks, how many nobody sees, everybody sees, and some see.
  size_t empty_blocks() const;
  size_t full_blocks() const;
  size_t partial_blocks() const { return partial_count_; }

  // Whether some, all or none of queries [query, query + queries), counted from
  // first_query, see keys [key, key + keys). May answer kSome where whole
  // blocks would have to be looked into.
  enum class Sees { kNone, kSome, kAll };
  Sees Look(size_t b, size_t h, size_t query, size_t queries, size_t key,
            size_t keys) const;
  // Who of kKeys keys from `key` on one query sees; 0 beyond the mask.
  void RowBits(size_t b, size_t h, size_t query, size_t key, Bits bits) const;

 private:
  // Sets the bits of kKeys keys, from `key` on, that `query` sees; they are 0
  // before.
  struct RowSource {
    const void* context;
    void (*read)(const void* context, size_t b, size_t h, size_t query,
                 const BlockMaskShape& shape, size_t key, Bits bits);
  };

  BlockMask();
  static Status Build(const BlockMaskShape& shape, const RowSource& source,
                      std::unique_ptr<BlockMask>* out);
  bool AppendPartial(const Bits* block);
  // Index of a block; of a mask for all entries or heads, the same for all.
  size_t BlockIndex(size_t b, size_t h, size_t query_block,
                    size_t key_block) const;

  struct Storage;
  BlockMaskShape shape_;
  size_t partial_count_ = 0;
  std::unique_ptr<Storage> storage_;
};

}  // namespace headwise

#endif  // HEADWISE_BLOCK_MASK_H_
