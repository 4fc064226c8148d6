#include "adapters.h"

namespace headwise {
namespace conformance {

Adapter AdapterOf(const std::string& kind) {
  if (kind == "torch_mha") return RunTorchMha;
  if (kind == "keras_mha") return RunKerasMha;
  if (kind == "onnx_attention" || kind == "ort_onnx_attention") {
    return RunOnnxAttention;
  }
  if (kind == "onnx_rotary" || kind == "ort_rotary") return RunRotary;
  if (kind == "ort_mha") return RunOrtMha;
  if (kind == "ort_attention") return RunOrtAttention;
  if (kind == "ort_gqa") return RunOrtGqa;
  return nullptr;
}

void Check(const Status& status) {
  if (!status.ok()) {
    throw CaseError(std::string("the library refuses: ") + status.message());
  }
}

}  // namespace conformance
}  // namespace headwise
