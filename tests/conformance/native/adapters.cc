#include "adapters.h"

namespace headwise {
namespace conformance {

Adapter AdapterOf(const std::string& kind) {
  if (kind == "torch_mha") return RunTorchMha;
  if (kind == "keras_mha") return RunKerasMha;
  if (kind == "onnx_attention" || kind == "ort_onnx_attention") {
    return RunOnnxAttention;
  }
  return nullptr;
}

void Check(const Status& status) {
  if (!status.ok()) {
    throw CaseError(std::string("the library refuses: ") + status.message());
  }
}

void RefuseFlag(Case* c, const std::string& name) {
  if (c->Flag(name, false)) {
    throw CaseError("the adapter does not handle attr." + name + "=1");
  }
}

void RefuseInput(Case* c, const std::string& name) {
  const Case::Rules any = {{"F32", "F64", "I32", "I64", "BOOL"},
                           {0, 1, 2, 3, 4, 5}};
  if (c->Input(name, any) != nullptr) {
    throw CaseError("the adapter does not handle in." + name);
  }
}

}  // namespace conformance
}  // namespace headwise
