#include "case_file.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <utility>

#include "safetensors.h"

namespace headwise {
namespace conformance {
namespace {

constexpr const char* kWantedPrefixes[] = {"out.", "ref64.", "ref32.", "grad."};

bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

// The place of the prefix in kWantedPrefixes, or their number.
size_t WantedRank(const std::string& name) {
  size_t rank = 0;
  for (const char* prefix : kWantedPrefixes) {
    if (StartsWith(name, prefix)) return rank;
    ++rank;
  }
  return rank;
}

double ParseNumber(const std::string& text, const std::string& what) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || end != text.c_str() + text.size() ||
      !std::isfinite(value)) {
    throw CaseError(what + " is \"" + text + "\", want a finite number");
  }
  return value;
}

template <typename T>
std::string Joined(const std::vector<T>& items, const char* separator) {
  std::ostringstream out;
  for (size_t i = 0; i < items.size(); ++i) {
    out << (i == 0 ? "" : separator) << items[i];
  }
  return out.str();
}

}  // namespace

size_t SizeOf(const Shape& shape) {
  size_t size = 1;
  for (const size_t n : shape) size *= n;
  return size;
}

std::string ShapeText(const Shape& shape) {
  return "[" + Joined(shape, ",") + "]";
}

std::vector<float> Tensor::Floats() const {
  std::vector<float> floats;
  floats.reserve(values.size());
  for (const double value : values) floats.push_back(static_cast<float>(value));
  return floats;
}

Case Case::Read(const std::filesystem::path& path) {
  SafetensorsFile file = ReadSafetensors(path);
  Case c;
  c.tensors_ = std::move(file.tensors);
  c.metadata_ = std::move(file.metadata);
  c.kind_ = c.Text("kind").value_or("");
  if (c.kind_.empty()) throw CaseError("its metadata names no kind");
  std::istringstream words(c.Text("features").value_or(""));
  c.features_.assign(std::istream_iterator<std::string>(words), {});
  return c;
}

std::optional<std::string> Case::Text(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return std::nullopt;
  return found->second;
}

Tolerance Case::tolerance() const {
  const auto read = [this](const std::string& key) {
    const std::optional<std::string> text = Text(key);
    if (!text) throw CaseError(key + " is missing");
    const double value = ParseNumber(*text, key);
    if (value < 0.0) throw CaseError(key + " is negative");
    return value;
  };
  return {read("tol_abs"), read("tol_rel")};
}

FullyMasked Case::fully_masked() const {
  const std::optional<std::string> text = Text("fully_masked");
  if (!text) return FullyMasked::kAbsent;
  if (*text == "zero") return FullyMasked::kZero;
  if (*text == "nan") return FullyMasked::kNan;
  if (*text == "uniform") return FullyMasked::kUniform;
  if (*text == "finite") return FullyMasked::kFinite;
  throw CaseError("fully_masked is \"" + *text +
                  "\", want zero, nan, uniform or finite");
}

std::vector<const Tensor*> Case::Wanted() const {
  std::vector<const Tensor*> wanted;
  for (const auto& [name, tensor] : tensors_) {
    if (WantedRank(name) < std::size(kWantedPrefixes)) {
      wanted.push_back(&tensor);
    } else if (!StartsWith(name, "in.") && !StartsWith(name, "param.")) {
      throw CaseError("tensor " + name + " is neither input nor result");
    }
  }
  if (wanted.empty()) {
    throw CaseError("it wants no result: there is nothing to compare");
  }
  std::stable_sort(wanted.begin(), wanted.end(),
                   [](const Tensor* a, const Tensor* b) {
                     return WantedRank(a->name) < WantedRank(b->name);
                   });
  return wanted;
}

bool Case::Wants(const std::string& result) const {
  for (const Tensor* tensor : Wanted()) {
    if (tensor->name.substr(tensor->name.find('.') + 1) == result) return true;
  }
  return false;
}

const Tensor* Case::Input(const std::string& name, const Rules& rules) {
  std::set<std::string> seen;
  std::string target = name;
  for (;;) {
    const std::optional<std::string> alias = Text("alias." + target);
    if (!alias) break;
    if (tensors_.count("in." + target) != 0) {
      throw CaseError("in." + target + " is present and an alias of " + *alias);
    }
    if (!seen.insert(target).second) {
      throw CaseError("alias." + target + " leads back to itself");
    }
    taken_.insert("alias." + target);
    target = *alias;
  }
  if (target != name && tensors_.count("in." + target) == 0) {
    throw CaseError("alias." + name + " leads to in." + target +
                    ", which is missing");
  }
  return Take("in." + target, rules);
}

const Tensor& Case::RequiredInput(const std::string& name, const Rules& rules) {
  const Tensor* tensor = Input(name, rules);
  if (tensor == nullptr) throw CaseError("in." + name + " is missing");
  return *tensor;
}

const Tensor* Case::Param(const std::string& name, size_t rank) {
  return Take("param." + name, {{"F32"}, {rank}});
}

const Tensor& Case::RequiredParam(const std::string& name, size_t rank) {
  const Tensor* tensor = Param(name, rank);
  if (tensor == nullptr) throw CaseError("param." + name + " is missing");
  return *tensor;
}

const Tensor* Case::Take(const std::string& name, const Rules& rules) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return nullptr;
  taken_.insert(name);
  const Tensor& tensor = found->second;
  const auto has = [](const auto& list, const auto& item) {
    return std::find(list.begin(), list.end(), item) != list.end();
  };
  if (!has(rules.dtypes, tensor.dtype)) {
    throw CaseError(name + " is " + tensor.dtype + ", the adapter handles " +
                    Joined(rules.dtypes, " and "));
  }
  if (!has(rules.ranks, tensor.shape.size())) {
    throw CaseError(name + " has rank " + std::to_string(tensor.shape.size()) +
                    ", the adapter handles " + Joined(rules.ranks, ", "));
  }
  return &tensor;
}

std::optional<std::string> Case::Attribute(const std::string& name) {
  const std::string key = "attr." + name;
  std::optional<std::string> text = Text(key);
  if (text) taken_.insert(key);
  return text;
}

bool Case::Flag(const std::string& name, bool fallback) {
  const std::optional<std::string> text = Attribute(name);
  if (!text) return fallback;
  if (*text != "0" && *text != "1") {
    throw CaseError("attr." + name + " is \"" + *text + "\", want 0 or 1");
  }
  return *text == "1";
}

std::optional<double> Case::Number(const std::string& name) {
  const std::optional<std::string> text = Attribute(name);
  if (!text) return std::nullopt;
  return ParseNumber(*text, "attr." + name);
}

std::optional<int64_t> Case::Integer(const std::string& name) {
  const std::optional<double> value = Number(name);
  if (!value) return std::nullopt;
  if (*value != std::floor(*value) || std::abs(*value) > 1e15) {
    throw CaseError("attr." + name + " is no whole number");
  }
  return static_cast<int64_t>(*value);
}

size_t Case::Size(const std::string& name, std::optional<size_t> fallback) {
  const std::optional<int64_t> value = Integer(name);
  if (!value) {
    if (!fallback) throw CaseError("attr." + name + " is missing");
    return *fallback;
  }
  if (*value < 0) throw CaseError("attr." + name + " is negative");
  return static_cast<size_t>(*value);
}

std::vector<std::string> Case::Untouched() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) {
    if (StartsWith(name, "in.") || StartsWith(name, "param.")) {
      names.push_back(name);
    }
  }
  for (const auto& [key, value] : metadata_) {
    if (StartsWith(key, "attr.") || StartsWith(key, "alias.")) {
      names.push_back(key);
    }
  }
  names.erase(std::remove_if(names.begin(), names.end(),
                             [this](const std::string& name) {
                               return taken_.count(name) != 0;
                             }),
              names.end());
  return names;
}

}  // namespace conformance
}  // namespace headwise
