// How fallible functions answer. Three families of errors by who must act: the input (a caller can
// fix it), the environment (device, file, port), and ourselves (a bug). Libraries never exit and
// never print; only app/ turns an error into an exit status.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace xpipe::ir {

/// Who must act. app/ maps these to the exit statuses of design.md §8.
enum class ErrorKind : std::uint8_t {
  Usage,        ///< a bad option or an impossible combination of options      (exit 2)
  BadInput,     ///< a file that cannot be read as what it should be           (exit 3)
  Illegal,      ///< a schedule that cannot run or does not fit                (exit 4)
  Runtime,      ///< device, disk, peer or time-out while running              (exit 5)
  Interrupted,  ///< stopped by a signal                                       (exit 130 or 143)
  Internal,     ///< our own mistake                                           (exit 5)
};

/// One fault. `code` is stable ("slot-race"); `where` is a place a reader can go to: "line 3,
/// column 7", "/layers/2/forward_us", a task's text form, or an option's name. `message` says what
/// was found, what was expected and, if known, the fix.
struct Diagnostic {
  std::string code;
  std::string where;
  std::string message;

  bool operator==(const Diagnostic&) const = default;
};

/// All faults found at once; never empty.
struct Error {
  ErrorKind kind = ErrorKind::Internal;
  std::vector<Diagnostic> diagnostics;

  /// One line per diagnostic: "where: message [code]".
  [[nodiscard]] std::string to_string() const;
};

[[nodiscard]] Error make_error(ErrorKind kind,
                               std::string code,
                               std::string where,
                               std::string message);

/// Either nothing or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;

  Status(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return !error_.has_value(); }

  /// Requires: !ok().
  [[nodiscard]] const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

/// Either a value or an Error. std::expected needs C++23.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return state_.index() == 0; }

  /// Requires: ok().
  [[nodiscard]] const T& value() const& { return std::get<0>(state_); }

  [[nodiscard]] T& value() & { return std::get<0>(state_); }

  [[nodiscard]] T&& value() && { return std::get<0>(std::move(state_)); }

  /// Requires: !ok().
  [[nodiscard]] const Error& error() const { return std::get<1>(state_); }

  [[nodiscard]] Status status() const { return ok() ? Status() : Status(error()); }

 private:
  std::variant<T, Error> state_;
};

/// Ends the process with file, line and message: for our own mistakes only, on in all builds.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure();

  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

}  // namespace xpipe::ir

/// XPIPE_CHECK(a < b) << "a is " << a;  An invariant of our own; never for input.
#define XPIPE_CHECK(condition) \
  if (condition) {             \
  } else                       \
    ::xpipe::ir::CheckFailure(__FILE__, __LINE__, #condition).stream()
