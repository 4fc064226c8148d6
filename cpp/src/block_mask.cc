#include "headwise/block_mask.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "memory.h"
#include "view_checks.h"

namespace headwise {
namespace {

// What a block is: nobody sees it, everybody does, or the number of its bits
// among the partial ones.
constexpr int32_t kEmpty = -1;
constexpr int32_t kFull = -2;

constexpr size_t kWords = BlockMask::kKeys / 64;

// Bits [0, count) of a row.
void FirstBits(size_t count, BlockMask::Bits bits) {
  for (size_t w = 0; w < kWords; ++w) {
    const size_t own = count - std::min(count, w * 64);
    bits[w] = own >= 64 ? ~uint64_t{0} : (uint64_t{1} << own) - 1;
  }
}

bool HasPairs(const BlockMaskShape& s) {
  return s.batch != 0 && s.heads != 0 && s.queries != 0 && s.keys != 0;
}

Status OutOfMemory(const BlockMaskShape& s) {
  return Status::Error(StatusCode::kOutOfMemory,
                       "BlockMask: no memory for [%zu, %zu, %zu, %zu]", s.batch,
                       s.heads, s.queries, s.keys);
}

}  // namespace

struct BlockMask::Storage {
  size_t query_blocks = 0;
  size_t key_blocks = 0;
  AlignedBuffer<int32_t> blocks;  // [batch, heads, query_blocks, key_blocks]
  AlignedBuffer<Bits> partial;    // [partial block, kQueries]
};

BlockMask::BlockMask() = default;
BlockMask::~BlockMask() = default;

size_t BlockMask::BlockIndex(size_t b, size_t h, size_t query_block,
                             size_t key_block) const {
  const size_t entry = shape_.batch == 1 ? 0 : b;
  const size_t head = shape_.heads == 1 ? 0 : h;
  return ((entry * shape_.heads + head) * storage_->query_blocks +
          query_block) *
             storage_->key_blocks +
         key_block;
}

bool BlockMask::AppendPartial(const Bits* block) {
  AlignedBuffer<Bits>& partial = storage_->partial;
  const size_t used = partial_count_ * kQueries;
  if (used == partial.size()) {
    AlignedBuffer<Bits> larger;
    if (!larger.Allocate(std::max(SaturatingMul(2, used), 8 * kQueries))) {
      return false;
    }
    if (used != 0)
      std::memcpy(larger.data(), partial.data(), used * sizeof(Bits));
    partial = std::move(larger);
  }
  std::memcpy(partial.data() + used, block, kQueries * sizeof(Bits));
  ++partial_count_;
  return true;
}

Status BlockMask::Build(const BlockMaskShape& shape, const RowSource& source,
                        std::unique_ptr<BlockMask>* out) {
  HEADWISE_RETURN_IF_ERROR(CheckPointer("BlockMask", "out", out));
  constexpr int64_t kFarthest = int64_t{1} << 31;
  if (shape.first_query < -kFarthest || shape.first_query > kFarthest) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "BlockMask: first_query is %lld; it must be within "
                         "2^31 of 0",
                         static_cast<long long>(shape.first_query));
  }
  constexpr size_t kMost = size_t{1} << 31;
  if (shape.queries > kMost || shape.keys > kMost) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "BlockMask: %zu queries and %zu keys; at most 2^31 "
                         "have a position",
                         shape.queries, shape.keys);
  }
  std::unique_ptr<BlockMask> made(new (std::nothrow) BlockMask());
  if (made == nullptr) return OutOfMemory(shape);
  made->shape_ = shape;
  made->storage_.reset(new (std::nothrow) Storage());
  if (made->storage_ == nullptr) return OutOfMemory(shape);
  Storage& s = *made->storage_;
  s.query_blocks = CeilDiv(shape.queries, kQueries);
  s.key_blocks = CeilDiv(shape.keys, kKeys);
  const size_t count =
      SaturatingMul(SaturatingMul(shape.batch, shape.heads),
                    SaturatingMul(s.query_blocks, s.key_blocks));
  // Blocks are numbered by int32.
  if (count > INT32_MAX || !s.blocks.Allocate(count)) return OutOfMemory(shape);
  if (count == 0) {
    *out = std::move(made);
    return Status();
  }

  Bits block[kQueries];
  Bits full;
  size_t index = 0;
  for (size_t b = 0; b < shape.batch; ++b) {
    for (size_t h = 0; h < shape.heads; ++h) {
      for (size_t query = 0; query < shape.queries; query += kQueries) {
        const size_t rows = std::min(kQueries, shape.queries - query);
        for (size_t key = 0; key < shape.keys; key += kKeys) {
          FirstBits(std::min(kKeys, shape.keys - key), full);
          std::memset(block, 0, sizeof(block));
          uint64_t any = 0;
          uint64_t missing = 0;
          for (size_t r = 0; r < rows; ++r) {
            source.read(source.context, b, h, query + r, shape, key, block[r]);
            for (size_t w = 0; w < kWords; ++w) {
              any |= block[r][w];
              missing |= full[w] & ~block[r][w];
            }
          }
          int32_t kind = static_cast<int32_t>(made->partial_count_);
          if (any == 0) {
            kind = kEmpty;
          } else if (missing == 0) {
            kind = kFull;
          } else if (!made->AppendPartial(block)) {
            return OutOfMemory(shape);
          }
          s.blocks.data()[index++] = kind;
        }
      }
    }
  }
  *out = std::move(made);
  return Status();
}

Status BlockMask::FromBlocks(const BlockMaskShape& shape, const uint8_t* map,
                             size_t block_queries, size_t block_keys,
                             std::unique_ptr<BlockMask>* out) {
  if (block_queries == 0 || block_keys == 0) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "BlockMask: blocks of %zu queries and %zu keys; both "
                         "must be at least 1",
                         block_queries, block_keys);
  }
  if (map == nullptr && HasPairs(shape)) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "BlockMask: the map is null");
  }
  const size_t rows = CeilDiv(shape.queries, block_queries);
  const size_t columns = CeilDiv(shape.keys, block_keys);
  return FromFunction(
      shape,
      [&](size_t b, size_t h, int64_t i, int64_t j) {
        const size_t row =
            static_cast<size_t>(i - shape.first_query) / block_queries;
        const size_t column = static_cast<size_t>(j) / block_keys;
        return map[((b * shape.heads + h) * rows + row) * columns + column] !=
               0;
      },
      out);
}

Status BlockMask::FromBits(const BlockMaskShape& shape, const uint32_t* bits,
                           std::unique_ptr<BlockMask>* out) {
  if (bits == nullptr && HasPairs(shape)) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "BlockMask: the bits are null");
  }
  const RowSource source = {
      bits, [](const void* context, size_t b, size_t h, size_t query,
               const BlockMaskShape& of, size_t key, Bits to) {
        const size_t words = CeilDiv(of.keys, 32);
        const uint32_t* row = static_cast<const uint32_t*>(context) +
                              ((b * of.heads + h) * of.queries + query) * words;
        Bits within;
        FirstBits(std::min(kKeys, of.keys - key), within);
        for (size_t w = key / 32; w < words && w < (key + kKeys) / 32; ++w) {
          const size_t at = w - key / 32;
          to[at / 2] |= uint64_t{row[w]} << 32 * (at % 2);
        }
        // Whatever stands behind the last key.
        for (size_t w = 0; w < kWords; ++w) to[w] &= within[w];
      }};
  return Build(shape, source, out);
}

size_t BlockMask::bytes() const {
  return storage_->blocks.size() * sizeof(int32_t) +
         storage_->partial.size() * sizeof(Bits);
}

size_t BlockMask::empty_blocks() const {
  const AlignedBuffer<int32_t>& blocks = storage_->blocks;
  return static_cast<size_t>(
      std::count(blocks.data(), blocks.data() + blocks.size(), kEmpty));
}

size_t BlockMask::full_blocks() const {
  const AlignedBuffer<int32_t>& blocks = storage_->blocks;
  return static_cast<size_t>(
      std::count(blocks.data(), blocks.data() + blocks.size(), kFull));
}

BlockMask::Sees BlockMask::Look(size_t b, size_t h, size_t query,
                                size_t queries, size_t key, size_t keys) const {
  // Beyond the mask nobody sees, and there are no blocks.
  const size_t last_query = std::min(query + queries, shape_.queries);
  const size_t last_key = std::min(key + keys, shape_.keys);
  if (query >= last_query || key >= last_key) return Sees::kNone;
  const size_t query_end = CeilDiv(last_query, kQueries);
  const size_t key_end = CeilDiv(last_key, kKeys);
  bool some = false;
  bool all = last_query == query + queries && last_key == key + keys;
  for (size_t q = query / kQueries; q < query_end; ++q) {
    for (size_t k = key / kKeys; k < key_end; ++k) {
      const int32_t kind = storage_->blocks.data()[BlockIndex(b, h, q, k)];
      some |= kind != kEmpty;
      all &= kind == kFull;
    }
  }
  if (!some) return Sees::kNone;
  return all ? Sees::kAll : Sees::kSome;
}

void BlockMask::RowBits(size_t b, size_t h, size_t query, size_t key,
                        Bits bits) const {
  // kKeys bits from anywhere lie in two blocks: the words from key / 64 on,
  // shifted.
  uint64_t words[kWords + 1] = {};
  for (size_t w = 0; w <= kWords; ++w) {
    const size_t first = key / 64 * 64 + w * 64;
    if (first >= shape_.keys) break;
    const int32_t kind =
        storage_->blocks
            .data()[BlockIndex(b, h, query / kQueries, first / kKeys)];
    if (kind == kEmpty) continue;
    if (kind == kFull) {
      Bits full;
      FirstBits(std::min(size_t{64}, shape_.keys - first), full);
      words[w] = full[0];
      continue;
    }
    const Bits& row =
        storage_->partial
            .data()[static_cast<size_t>(kind) * kQueries + query % kQueries];
    words[w] = row[first % kKeys / 64];
  }
  const size_t shift = key % 64;
  for (size_t w = 0; w < kWords; ++w) {
    bits[w] = shift == 0 ? words[w]
                         : words[w] >> shift | words[w + 1] << (64 - shift);
  }
}

}  // namespace headwise
