// Runs the conformance cases of a folder through the C++ library, each under
// every instruction set this machine has. tests/conformance/run.mjs --native
// builds it and spells out the selection:
//
//   headwise_conformance --dir DIR --kind KIND... [--known-kind KIND...]
//       [--unknown-kinds-fail] [--without FEATURE...] [--verbose]
//
// The last line is `N passed, N failed, N skipped`; the exit code is 0 only if
// nothing failed.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "adapters.h"
#include "case_file.h"
#include "compare.h"
#include "kernels/kernels.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace conformance {
namespace {

namespace fs = std::filesystem;

struct Options {
  fs::path dir;
  std::vector<std::string> kinds;
  std::vector<std::string> known_kinds;
  std::vector<std::string> without;
  bool unknown_kinds_fail = false;
  bool verbose = false;
};

bool Contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool ParseArguments(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--verbose") {
      options->verbose = true;
      continue;
    }
    if (name == "--unknown-kinds-fail") {
      options->unknown_kinds_fail = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const std::string value = argv[++i];
    if (name == "--dir") {
      options->dir = value;
    } else if (name == "--kind") {
      options->kinds.push_back(value);
    } else if (name == "--known-kind") {
      options->known_kinds.push_back(value);
    } else if (name == "--without") {
      options->without.push_back(value);
    } else {
      return false;
    }
  }
  return !options->dir.empty() && !options->kinds.empty();
}

// Why the selection leaves the case out; empty if it does not.
std::string LeftOut(const Options& options, const Case& c) {
  if (!Contains(options.kinds, c.kind())) {
    if (AdapterOf(c.kind())) return "kind " + c.kind();
    if (Contains(options.known_kinds, c.kind())) {
      return "kind " + c.kind() + " (no adapter yet)";
    }
    if (options.unknown_kinds_fail) return "";
    return "kind " + c.kind() + " (unknown)";
  }
  std::string features;
  for (const std::string& feature : c.features()) {
    if (!Contains(options.without, feature)) continue;
    features += (features.empty() ? "" : " + ") + feature;
  }
  return features.empty() ? "" : "feature " + features;
}

// Runs the case under the instruction set in use; throws CaseError with what is
// wrong.
double Judge(Case* c) {
  const Adapter adapter = AdapterOf(c->kind());
  if (!adapter) throw CaseError("there is no adapter for kind " + c->kind());
  const Tolerance tolerance = c->tolerance();
  const std::vector<const Tensor*> wanted = c->Wanted();
  c->ForgetTouched();
  const Results results = adapter(c);
  std::string untouched;
  for (const std::string& name : c->Untouched()) {
    untouched += (untouched.empty() ? "" : ", ") + name;
  }
  if (!untouched.empty()) {
    throw CaseError("the adapter does not handle " + untouched);
  }
  double worst = 0.0;
  std::string problems;
  for (const Tensor* want : wanted) {
    const auto found =
        results.find(want->name.substr(want->name.find('.') + 1));
    if (found == results.end()) {
      throw CaseError("the adapter does not make " + want->name);
    }
    const Verdict verdict = Compare(found->second, *want, tolerance);
    worst = std::max(worst, verdict.worst);
    if (verdict.problem.empty()) continue;
    problems += (problems.empty() ? "" : "\n    ") + want->name + ": " +
                verdict.problem;
  }
  if (!problems.empty()) throw CaseError(problems);
  return worst;
}

std::vector<size_t> AvailableTargets() {
  std::vector<size_t> available;
  for (size_t i = 0; i < kernels::TestTargetCount(); ++i) {
    if (kernels::UseTestTarget(i)) available.push_back(i);
  }
  kernels::UseBestTarget();
  return available;
}

class Runner {
 public:
  explicit Runner(Options options)
      : options_(std::move(options)), targets_(AvailableTargets()) {}

  int Run() {
    std::string names;
    for (const size_t target : targets_) {
      names += std::string(names.empty() ? "" : ", ") +
               kernels::TestTargetName(target);
    }
    std::printf("cases of %s through the C++ library %s, targets %s\n",
                options_.dir.string().c_str(), Version(), names.c_str());
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(options_.dir)) {
      if (entry.path().extension() == ".safetensors") {
        files.push_back(entry.path().filename().string());
      }
    }
    std::sort(files.begin(), files.end());
    CheckIndex(files);
    for (const std::string& file : files) RunFile(file);
    std::vector<std::pair<std::string, size_t>> reasons(reasons_.begin(),
                                                        reasons_.end());
    std::stable_sort(
        reasons.begin(), reasons.end(),
        [](const auto& a, const auto& b) { return a.second > b.second; });
    for (const auto& [reason, count] : reasons) {
      std::printf("skipped %zu: %s\n", count, reason.c_str());
    }
    std::printf("%zu passed, %zu failed, %zu skipped\n", passed_, failed_,
                skipped_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  // What index.json lists must be there.
  void CheckIndex(const std::vector<std::string>& files) {
    std::ifstream stream(options_.dir / "index.json", std::ios::binary);
    if (!stream) return;
    const auto index =
        nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
    if (!index.is_array()) {
      Fail("index.json", "", "cannot be read: it is not a JSON array");
      return;
    }
    for (const auto& entry : index) {
      if (!entry.is_object() || !entry.contains("file") ||
          !entry["file"].is_string()) {
        Fail("index.json", "", "cannot be read: an entry names no file");
        return;
      }
      const std::string file = entry["file"].get<std::string>();
      if (!Contains(files, file)) {
        Fail(file, "", "is listed in index.json, but missing");
      }
    }
  }

  void RunFile(const std::string& file) {
    std::string kind;
    try {
      Case c = Case::Read(options_.dir / file);
      kind = c.kind();
      const std::string reason = LeftOut(options_, c);
      if (!reason.empty()) {
        ++skipped_;
        ++reasons_[reason];
        return;
      }
      double worst = 0.0;
      std::string problems;
      for (const size_t target : targets_) {
        if (!kernels::UseTestTarget(target)) {
          throw CaseError("an instruction set has gone away");
        }
        try {
          worst = std::max(worst, Judge(&c));
        } catch (const CaseError& error) {
          problems += (problems.empty() ? "[" : "\n    [") +
                      std::string(kernels::TestTargetName(target)) + "] " +
                      error.what();
        }
      }
      kernels::UseBestTarget();
      if (!problems.empty()) {
        Fail(file, kind, problems);
        return;
      }
      ++passed_;
      if (options_.verbose) {
        std::printf(
            "passed %s (%s): worst element at %.1f %% of what is "
            "allowed\n",
            file.c_str(), kind.c_str(), 100.0 * worst);
      }
    } catch (const std::exception& error) {
      // A damaged case, or one whose sizes exhaust memory: the others still
      // run.
      Fail(file, kind, error.what());
    }
  }

  void Fail(const std::string& file, const std::string& kind,
            const std::string& text) {
    ++failed_;
    std::printf("FAILED %s%s: %s\n", file.c_str(),
                kind.empty() ? "" : (" (" + kind + ")").c_str(), text.c_str());
  }

  const Options options_;
  const std::vector<size_t> targets_;
  std::map<std::string, size_t> reasons_;
  size_t passed_ = 0;
  size_t failed_ = 0;
  size_t skipped_ = 0;
};

int Main(int argc, char** argv) {
  Options options;
  std::error_code error;
  if (!ParseArguments(argc, argv, &options) ||
      !fs::is_directory(options.dir, error)) {
    std::fprintf(stderr,
                 "error: this needs --dir with a folder of cases and --kind; "
                 "use node tests/conformance/run.mjs --native\n");
    return 2;
  }
  return Runner(std::move(options)).Run();
}

}  // namespace
}  // namespace conformance
}  // namespace headwise

int main(int argc, char** argv) {
  return headwise::conformance::Main(argc, argv);
}
