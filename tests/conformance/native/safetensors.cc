#include "safetensors.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace headwise {
namespace conformance {
namespace {

using Json = nlohmann::json;

[[noreturn]] void Damaged(const std::string& what) {
  throw CaseError("cannot be read: " + what);
}

std::string ReadBytes(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) Damaged("the file cannot be opened");
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

// nlohmann-json keeps the last of several equal keys; a file with two tensors
// of one name is damaged.
Json ParseHeader(const std::string& text) {
  std::vector<std::set<std::string>> keys;
  bool repeated = false;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      repeated |= !keys.back().insert(parsed.get<std::string>()).second;
    }
    return true;
  };
  Json header = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (!header.is_object()) Damaged("its header is not a JSON object");
  if (repeated) Damaged("its header repeats a name");
  return header;
}

template <typename T>
std::vector<double> Decode(const char* bytes, size_t count) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
  return values;
}

struct Type {
  const char* name;
  size_t bytes;
  std::vector<double> (*decode)(const char* bytes, size_t count);
};
constexpr Type kTypes[] = {
    {"F32", 4, Decode<float>},    {"F64", 8, Decode<double>},
    {"I32", 4, Decode<int32_t>},  {"I64", 8, Decode<int64_t>},
    {"BOOL", 1, Decode<uint8_t>},
};

const Type& TypeOf(const std::string& name, const std::string& dtype) {
  for (const Type& type : kTypes) {
    if (dtype == type.name) return type;
  }
  Damaged(name + " has the unknown dtype " + dtype);
}

size_t UnsignedOf(const Json& value, const std::string& what) {
  if (!value.is_number_unsigned()) Damaged(what + " is not a whole number");
  return value.get<size_t>();
}

Tensor ReadTensor(const std::string& name, const Json& entry, const char* data,
                  size_t data_size) {
  if (!entry.is_object() || !entry.contains("dtype") ||
      !entry["dtype"].is_string() || !entry.contains("shape") ||
      !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
    Damaged(name + " lacks dtype, shape or data_offsets");
  }
  Tensor tensor;
  tensor.name = name;
  tensor.dtype = entry["dtype"].get<std::string>();
  const Type& type = TypeOf(name, tensor.dtype);
  const size_t begin = UnsignedOf(entry["data_offsets"][0], name + " begin");
  const size_t end = UnsignedOf(entry["data_offsets"][1], name + " end");
  if (begin > end || end > data_size) {
    Damaged(name + " lies outside the file");
  }
  size_t count = 1;
  for (const Json& size : entry["shape"]) {
    const size_t n = UnsignedOf(size, name + " shape");
    if (n != 0 && count > SIZE_MAX / n) Damaged(name + " is too large");
    count *= n;
    tensor.shape.push_back(n);
  }
  if (count != (end - begin) / type.bytes || (end - begin) % type.bytes != 0) {
    Damaged(name + " has " + std::to_string(end - begin) +
            " bytes, which is not what its shape needs");
  }
  tensor.values = type.decode(data + begin, count);
  return tensor;
}

}  // namespace

SafetensorsFile ReadSafetensors(const std::filesystem::path& path) {
  const std::string bytes = ReadBytes(path);
  uint64_t header_size = 0;
  if (bytes.size() < sizeof(header_size)) Damaged("it is too short");
  for (size_t i = 0; i < sizeof(header_size); ++i) {
    header_size |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  if (header_size > bytes.size() - sizeof(header_size)) {
    Damaged("its header is longer than the file");
  }
  const Json header =
      ParseHeader(bytes.substr(sizeof(header_size), header_size));
  const size_t data_begin = sizeof(header_size) + header_size;
  SafetensorsFile file;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) Damaged("its metadata is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) Damaged("metadata " + key + " is not text");
        file.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    file.tensors[name] = ReadTensor(name, entry, bytes.data() + data_begin,
                                    bytes.size() - data_begin);
  }
  return file;
}

}  // namespace conformance
}  // namespace headwise
