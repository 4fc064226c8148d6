// The file format of the cases.
#ifndef HEADWISE_TESTS_CONFORMANCE_NATIVE_SAFETENSORS_H_
#define HEADWISE_TESTS_CONFORMANCE_NATIVE_SAFETENSORS_H_

#include <filesystem>
#include <map>
#include <string>

#include "case_file.h"

namespace headwise {
namespace conformance {

struct SafetensorsFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Throws CaseError when the file is damaged.
SafetensorsFile ReadSafetensors(const std::filesystem::path& path);

}  // namespace conformance
}  // namespace headwise

#endif  // HEADWISE_TESTS_CONFORMANCE_NATIVE_SAFETENSORS_H_
