// Adapters hand a case to the library and bring the results into the form the
// case wants. They rearrange; they compute no attention.
#ifndef HEADWISE_TESTS_CONFORMANCE_NATIVE_ADAPTERS_H_
#define HEADWISE_TESTS_CONFORMANCE_NATIVE_ADAPTERS_H_

#include <functional>
#include <map>
#include <string>

#include "case_file.h"
#include "compare.h"
#include "headwise/headwise.h"

namespace headwise {
namespace conformance {

// By the wanted tensor's name without its prefix.
using Results = std::map<std::string, Result>;
using Adapter = std::function<Results(Case*)>;

// The adapter of a kind, or null.
Adapter AdapterOf(const std::string& kind);

Results RunTorchMha(Case* c);
Results RunKerasMha(Case* c);
Results RunOnnxAttention(Case* c);
Results RunRotary(Case* c);
Results RunOrtMha(Case* c);
Results RunOrtAttention(Case* c);
Results RunOrtGqa(Case* c);

// Turns a refusal of the library into the case's failure.
void Check(const Status& status);

}  // namespace conformance
}  // namespace headwise

#endif  // HEADWISE_TESTS_CONFORMANCE_NATIVE_ADAPTERS_H_
