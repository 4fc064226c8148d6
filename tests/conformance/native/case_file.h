// One conformance case: a safetensors file with inputs, parameters and wanted
// results, its metadata saying what it is. The case keeps book of what an
// adapter took, so that an input or attribute nobody looked at is noticed.
#ifndef HEADWISE_TESTS_CONFORMANCE_NATIVE_CASE_FILE_H_
#define HEADWISE_TESTS_CONFORMANCE_NATIVE_CASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace headwise {
namespace conformance {

// Why a case cannot be run or judged. Only the runner throws; the library under
// test answers with a Status.
class CaseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using Shape = std::vector<size_t>;

size_t SizeOf(const Shape& shape);
std::string ShapeText(const Shape& shape);

// Every type of the files fits a double exactly (lengths are far below 2^53).
struct Tensor {
  std::string name;
  std::string dtype;
  Shape shape;
  std::vector<double> values;

  std::vector<float> Floats() const;
};

struct Tolerance {
  double abs = 0.0;
  double rel = 0.0;
};

// What rows without any allowed key give.
enum class FullyMasked { kAbsent, kZero, kNan, kUniform, kFinite };

class Case {
 public:
  // Throws CaseError when the file is damaged.
  static Case Read(const std::filesystem::path& path);

  const std::string& kind() const { return kind_; }
  const std::vector<std::string>& features() const { return features_; }
  std::string note() const { return Text("note").value_or(""); }
  Tolerance tolerance() const;
  FullyMasked fully_masked() const;

  // The wanted tensors, `out.` first.
  std::vector<const Tensor*> Wanted() const;
  // Whether some wanted tensor has this name after its prefix.
  bool Wants(const std::string& result) const;

  struct Rules {
    std::vector<std::string> dtypes;
    std::vector<size_t> ranks;
  };
  // `in.<name>`, or what it is an alias of, or null.
  const Tensor* Input(const std::string& name, const Rules& rules);
  const Tensor& RequiredInput(const std::string& name, const Rules& rules);
  const Tensor* Param(const std::string& name, size_t rank);
  const Tensor& RequiredParam(const std::string& name, size_t rank);

  std::optional<std::string> Attribute(const std::string& name);
  bool Flag(const std::string& name, bool fallback);
  std::optional<double> Number(const std::string& name);
  std::optional<int64_t> Integer(const std::string& name);
  // A size given by an attribute.
  size_t Size(const std::string& name, std::optional<size_t> fallback);

  // Inputs, parameters, attributes and aliases that were never asked for.
  std::vector<std::string> Untouched() const;
  void ForgetTouched() { taken_.clear(); }

 private:
  std::optional<std::string> Text(const std::string& key) const;
  const Tensor* Take(const std::string& name, const Rules& rules);

  std::string kind_;
  std::vector<std::string> features_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::set<std::string> taken_;
};

}  // namespace conformance
}  // namespace headwise

#endif  // HEADWISE_TESTS_CONFORMANCE_NATIVE_CASE_FILE_H_
