// What a call answers: fine, or why not. No exceptions, no allocation.
#ifndef HEADWISE_STATUS_H_
#define HEADWISE_STATUS_H_

#include <cstring>

namespace headwise {

enum class StatusCode : int {
  kOk = 0,
  kInvalidConfig = 1,    // a configuration that describes no layer
  kInvalidArgument = 2,  // an option or value the call cannot honour
  kShapeMismatch = 3,    // sizes that do not fit together
  kOutOfMemory = 4,      // the allocator had no more; nothing was changed
};

// A code and, when it is not kOk, a sentence: the call, the argument, what it
// got, what it wanted, the way out. The text lives inside the object so that
// reporting "out of memory" needs no memory.
class [[nodiscard]] Status {
 public:
  static constexpr int kMaxMessage = 240;

  Status() { message_[0] = '\0'; }
  // `format` is as for printf; a longer text is cut at kMaxMessage - 1.
  static Status Error(StatusCode code, const char* format, ...)
#if defined(__GNUC__) || defined(__clang__)
      __attribute__((format(printf, 2, 3)))
#endif
      ;

  Status(const Status& other) { *this = other; }
  Status& operator=(const Status& other) {
    if (this == &other) return *this;
    code_ = other.code_;
    if (code_ == StatusCode::kOk) {
      message_[0] = '\0';
    } else {
      std::memcpy(message_, other.message_, sizeof(message_));
    }
    return *this;
  }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const char* message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  char message_[kMaxMessage];
};

}  // namespace headwise

// Returns from the enclosing function when `expression` is not ok.
#define HEADWISE_RETURN_IF_ERROR(expression)                  \
  do {                                                        \
    const ::headwise::Status headwise_status_ = (expression); \
    if (!headwise_status_.ok()) return headwise_status_;      \
  } while (false)

#endif  // HEADWISE_STATUS_H_
