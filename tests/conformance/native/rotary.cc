// Kinds `onnx_rotary` and `ort_rotary`: rotary embedding from tables of cosines
// and sines, a row of which belongs to a position.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters.h"
#include "heads.h"
#include "rotary_table.h"

namespace headwise {
namespace conformance {
namespace {

const Case::Rules kInput = {{"F32"}, {3, 4}};

// x with its heads: `dim` is attr.rotary_embedding_dim or 0.
Heads ReadInput(Case* c, size_t dim, size_t table_width) {
  const bool onnx = c->kind() == "onnx_rotary";
  const Tensor& x = c->RequiredInput(onnx ? "X" : "input", kInput);
  const size_t heads = c->Size("num_heads", 0);
  if (x.shape.size() == 4) {
    if (heads != 0 && heads != x.shape[1]) {
      throw CaseError("attr.num_heads is not the " +
                      std::to_string(x.shape[1]) + " heads of " + x.name);
    }
    return ReadHeads(x, x.shape[1]);
  }
  if (onnx || dim != 0) {
    if (heads == 0) throw CaseError("attr.num_heads is missing");
    return ReadHeads(x, heads);
  }
  // The table says how wide a head is.
  const size_t cols = 2 * table_width;
  if (cols == 0 || x.shape[2] % cols != 0) {
    throw CaseError(x.name + " " + ShapeText(x.shape) +
                    " does not divide into heads of " + std::to_string(cols));
  }
  if (heads != 0 && heads * cols != x.shape[2]) {
    throw CaseError("attr.num_heads contradicts the width of the tables");
  }
  return ReadHeads(x, x.shape[2] / cols);
}

}  // namespace

Results RunRotary(Case* c) {
  const bool onnx = c->kind() == "onnx_rotary";
  const size_t dim = c->Size("rotary_embedding_dim", 0);
  const std::vector<size_t> id_ranks =
      onnx ? std::vector<size_t>{2} : std::vector<size_t>{0, 1, 2};
  const Tensor* ids = c->Input("position_ids", {{"I64", "I32"}, id_ranks});
  if (ids == nullptr && !onnx) throw CaseError("in.position_ids is missing");
  const size_t table_rank = ids == nullptr ? 3 : 2;
  const size_t width =
      c->RequiredInput("cos_cache", {{"F32"}, {table_rank}}).shape.back();
  Heads x = ReadInput(c, dim, width);
  const RotaryTables tables(c, (dim == 0 ? x.cols : dim) / 2,
                            c->Flag("interleaved", false));

  std::vector<int32_t> positions;
  RotaryPositions where;
  if (ids == nullptr) {
    // A row for every row of x.
    const Shape& shape = c->RequiredInput("cos_cache", {{"F32"}, {3}}).shape;
    if (shape[0] != x.batch || shape[1] != x.rows) {
      throw CaseError("in.cos_cache " + ShapeText(shape) +
                      " has no row for each row of the input");
    }
    for (size_t n = 0; n < x.batch * x.rows; ++n) {
      positions.push_back(static_cast<int32_t>(n));
    }
    where.positions = positions.data();
  } else if (ids->shape.size() == 2) {
    if (ids->shape != Shape{x.batch, x.rows}) {
      throw CaseError("in.position_ids is " + ShapeText(ids->shape) +
                      ", want " + ShapeText({x.batch, x.rows}));
    }
    for (const double id : ids->values) {
      positions.push_back(static_cast<int32_t>(id));
    }
    where.positions = positions.data();
  } else {
    if (ids->values.size() != 1) {
      throw CaseError("in.position_ids has " +
                      std::to_string(ids->values.size()) +
                      " values, want one start");
    }
    positions.assign(x.batch, static_cast<int32_t>(ids->values[0]));
    where.offsets = positions.data();
  }
  Check(RotaryEmbedding(tables.table(), where, x.MutableView()));
  Results results;
  results[onnx ? "Y" : "output"] = {x.shape(), std::move(x.data), {}};
  return results;
}

}  // namespace conformance
}  // namespace headwise
