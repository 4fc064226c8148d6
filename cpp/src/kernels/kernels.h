// Every kernel in plain C++: pointers, sizes, strides. Each call picks the
// best instruction set of the machine natively; on WASM there is one.
#ifndef HEADWISE_SRC_KERNELS_KERNELS_H_
#define HEADWISE_SRC_KERNELS_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <limits>

namespace headwise {
namespace kernels {

// Rows of a tile: the 4 of the 4 x 8 microkernel. Its 8 sums and their operands
// fit the 15 vector registers V8 can use, in every version. GFLOP/s of bare
// tiles at depth 768 on Zen 4 in Node 24, plain / relaxed SIMD: 4 x 8 47 / 51,
// 6 x 8 29 / 58 (it spills where a product needs a register before it is
// added), 3 x 12 50 / 54, 2 x 16 47 / 53, 8 x 4 33 / 49. Of a whole layer at L
// = 512, in shares of the peak, with 4, 5 and 6 rows: Node 24 relaxed 82, 84,
// 88 %, plain 72, 74, 46 %; Node 22 relaxed 83, 54, 57 %: more rows gain little
// in one engine and lose a third in another.
inline constexpr size_t kTileRows = 4;
// Keys of a chunk. Each chunk's maximum, sum and weighted sum are computed
// from scratch and merged left to right, so the bits of a row do not depend on
// how many chunks a call happened to look at.
inline constexpr size_t kChunk = 128;
// Query rows that share a pass over the keys: a chunk of 128 keys and values
// of 64 floats (64 KiB) stays in the second-level cache while 16 tiles use it.
inline constexpr size_t kQueryBlock = 64;

// Columns of a packed panel: two vectors of the instruction set in use.
size_t PanelWidth();

// ------------------------------------------------------------------ pack.cc

// rows x cols of `source`, times `scale`, into tiles [ceil(rows / 4)][cols][4];
// rows beyond the end are zeros.
void PackTiles(const float* source, size_t row_stride, size_t rows, size_t cols,
               float scale, float* tiles);

// n rows of `source`, each `depth` long, into panels of PanelWidth() rows:
// [ceil(n / width)][depth][width]. This is the right-hand side of A B^T: a
// weight [out, in], or keys [S, D].
void PackPanels(const float* source, size_t row_stride, size_t n, size_t depth,
                float* panels);
// The inverse, dense rows.
void UnpackPanels(const float* panels, size_t n, size_t depth, float* rows);

// n rows of `source` (at most kChunk), each `cols` long, into column panels
// [ceil(cols / width)][n][width]: the right-hand side of P V. Returns whether
// any value is NaN or infinite.
bool PackValues(const float* source, size_t row_stride, size_t n, size_t cols,
                float* panels);

// ---------------------------------------------------------------- matmul.cc

// c[i, j] = bias[j] + sum over k, in rising order, of a[i, k] * b[j, k].
struct MatMulArgs {
  const float* tiles = nullptr;  // a: PackTiles, rows x depth
  size_t rows = 0;
  size_t depth = 0;
  const float* panels = nullptr;  // b: PackPanels, cols x depth
  const float* bias = nullptr;    // padded to whole panels
  size_t cols = 0;
  float* c = nullptr;
  size_t c_stride = 0;
};
void MatMul(const MatMulArgs& args);

// ------------------------------------------------------------- attention.cc

// A mask over [rows, columns] of one batch entry and head.
template <typename T>
struct MaskRows {
  const T* data = nullptr;  // null: none
  size_t row_stride = 0;
  size_t key_stride = 0;  // 0: one value for all keys of a row
};

// Up to kChunk keys of one key/value head, packed.
struct KeyChunk {
  // Position of the first key, relative to the anchor; a multiple of kChunk.
  size_t first = 0;
  size_t count = 0;
  // Of the first key, in a row of a mask or of the weights.
  size_t column = 0;
  // Seen by every row, whatever positions and masks say.
  bool always = false;
  // Some value is NaN or infinite.
  bool nonfinite = false;
  const float* keys = nullptr;    // PackPanels
  const float* values = nullptr;  // [column panel][value_rows][width]
  size_t value_rows = 0;
};

// What the rows of a block may see of one chunk, beside positions and masks.
struct ChunkMask {
  enum class Sees { kNone, kSome, kAll };
  Sees sees = Sees::kAll;
  // kSome: bit j % 64 of word j / 64 of row i is the chunk's key j.
  const uint64_t (*bits)[kChunk / 64] = nullptr;
};

// Changes scores in place: row i at scores + i * kChunk. The first row is
// `row` of the block, the first key stands at `key`, relative to the anchor.
struct ScoreHook {
  void (*call)(const void* context, size_t row, size_t rows, size_t key,
               size_t keys, float* scores) = nullptr;
  const void* context = nullptr;
};

// One block of query rows of one head against all keys of its key/value head.
struct AttentionArgs {
  const KeyChunk* chunks = nullptr;  // in rising order
  size_t chunk_count = 0;
  size_t columns = 0;  // of a mask row: no mask is read beyond
  // Column that the first value of a row of weights or scores belongs to.
  size_t first_column = 0;
  size_t head_dim = 0;
  size_t v_head_dim = 0;

  // Queries: PackTiles, rows x head_dim. rows <= kQueryBlock. A score is
  // score_factor * q.k; the rest of the scale is in the queries. Rows from
  // seeing_rows on are padding and see nothing.
  const float* query_tiles = nullptr;
  float score_factor = 1.0f;
  size_t rows = 0;
  size_t seeing_rows = 0;
  // Row i may see, by position relative to the anchor, the keys [0, lead[i])
  // and [begin[i], end[i]).
  const size_t* lead = nullptr;
  const size_t* begin = nullptr;
  const size_t* end = nullptr;

  // 0: off.
  float softcap = 0.0f;
  // Row i gets -alibi_slope * |first_position + i - j| added at key j, both
  // relative to the anchor; slope 0: off.
  float alibi_slope = 0.0f;
  int64_t first_position = 0;
  // -infinity: none.
  float sink = -std::numeric_limits<float>::infinity();
  // Factor of the output.
  float gate = 1.0f;

  MaskRows<uint8_t> attend;   // 0 hides
  MaskRows<uint8_t> padding;  // 1 hides
  MaskRows<float> bias;       // added; -infinity hides
  // Of each chunk; null: all see all. With it there is no lead.
  const ChunkMask* chunk_masks = nullptr;
  // Between the softcap and the biases; not for chunks that are always seen.
  ScoreHook score_hook;

  // Scratch: kTileRows * kChunk floats; rows * RoundUp(v_head_dim, width)
  // floats.
  float* scores = nullptr;
  float* sums = nullptr;

  // Results. maximum[i] and total[i]: of the scores a row sees, sink included,
  // and the sum of exp(score - maximum); total 0 where it sees none.
  float* maximum = nullptr;
  float* total = nullptr;
  float* output = nullptr;  // row i at output + i * output_stride
  size_t output_stride = 0;
  // Written to the output of rows that see no key.
  float empty_value = 0.0f;
};

// output = softmax(scores) V, one pass.
void Attend(const AttentionArgs& args);

// ----------------------------------------------------- attention_weights.cc

// The weights of the same rows, from maximum and total as Attend left them:
// row i at weights + i * weights_stride, each chunk at its columns.
// `accumulate` adds to what is there.
void AttentionWeights(const AttentionArgs& args, float* weights,
                      size_t weights_stride, bool accumulate);

// Which scores: scale * q.k, after the softcap, or with bias and masks too
// (hidden: -infinity).
enum class ScoreStage { kRaw, kCapped, kBiased };

// The scores of the same rows at every key of the chunks, likewise.
void AttentionScores(const AttentionArgs& args, ScoreStage stage, float* scores,
                     size_t scores_stride);

// --------------------------------------------------------------- targets.cc

const char* TargetName();

// For tests: run a chosen instruction set. Indices count the ones compiled in;
// UseTestTarget answers false where the machine lacks it.
size_t TestTargetCount();
const char* TestTargetName(size_t index);
bool UseTestTarget(size_t index);
void UseBestTarget();

}  // namespace kernels
}  // namespace headwise

#endif  // HEADWISE_SRC_KERNELS_KERNELS_H_
