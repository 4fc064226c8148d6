// Attention behind earlier keys and values. Where the library's cache can say
// it, the past goes through the cache, and what is present is read back from
// there; elsewhere the past is put in front of the new keys.
#ifndef HEADWISE_TESTS_CONFORMANCE_NATIVE_ATTEND_H_
#define HEADWISE_TESTS_CONFORMANCE_NATIVE_ATTEND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "adapters.h"
#include "heads.h"
#include "masks.h"

namespace headwise {
namespace conformance {

// The first lengths[b] rows of entry b count.
struct Past {
  Heads key;
  Heads value;
  std::vector<int32_t> lengths;
};

// Past of rank 4, all of it, or nothing where neither tensor is there.
std::optional<Past> ReadPast(Case* c, size_t heads);
// Throws unless the past fits before the new keys.
void CheckPast(const Past& past, const Heads& key, const Heads& value);

// A cache that holds the past (null: nothing) and has room for `rows` more.
std::unique_ptr<KvCache> FillCache(const Past* past, const Heads& key,
                                   const Heads& value, size_t rows);
// The first `rows` rows of every entry, with heads first; rows beyond an
// entry's length are 0.
Result CachedKeys(const KvCache& cache, size_t rows);
Result CachedValues(const KvCache& cache, size_t rows);

struct Attention {
  Heads query;
  Heads key;
  Heads value;
  std::optional<Past> past;
  // New rows of an entry that count; empty: all.
  std::vector<int32_t> new_lengths;
  // Columns masks have; 0: as many as there are keys.
  size_t columns = 0;
  ScoresKind scores_kind = ScoresKind::kNone;
  bool need_weights = false;

  size_t past_rows() const;  // of the longest past
  size_t key_rows() const;   // keys with the past
};

struct Attended {
  Heads output;   // as the query lies
  Result scores;  // [B, H, L, S]; the weights with need_weights
  Result present_key;
  Result present_value;
};

// `options` holds what is not in `masks`. Query i of entry b stands behind its
// past; masks->offsets are set accordingly unless they are given.
Attended Attend(const Attention& call, const AttentionOptions& options,
                const FiniteRule& rule, Case* c, Masks* masks);

}  // namespace conformance
}  // namespace headwise

#endif  // HEADWISE_TESTS_CONFORMANCE_NATIVE_ATTEND_H_
