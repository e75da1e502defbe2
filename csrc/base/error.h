// The one exception of the core. bindings/ maps codes to Python classes, facade/ to Status; messages say who, what was
// got, what was expected and what to try.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace tcim_lite {

enum class ErrorCode {
  Internal,  // a mistake of this project
  Format,
  State,     // Status.UNINITIALIZED
  Argument,  // Status.INVALID_ARGUMENT
  Shape,
  UnknownName,
  Device,
  Unsupported,
  Aborted,  // the caller asked for it
  Strict,   // a finding of strict mode
};

// The class of tcim_lite.errors.
const char* class_of(ErrorCode code);

// `text` with every NUL as \x00, because what() and the log end at one.
std::string without_nul(std::string text);

// Thrown in libtcim_runtime_lite.so and caught in the Python extension: its destructor is out of line, so that the type
// information exists once.
class __attribute__((visibility("default"))) Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : Error(code, message, code) {}
  // `status_code`: whose Status the caller gets. A finding has that of the failure it tells of.
  Error(ErrorCode code, const std::string& message, ErrorCode status_code)
      : std::runtime_error(without_nul(message)), code_(code), status_code_(status_code) {}
  ~Error() override;
  ErrorCode code() const noexcept { return code_; }
  ErrorCode status_code() const noexcept { return status_code_; }

 private:
  ErrorCode code_;
  ErrorCode status_code_;
};

// A piece of a message: text, which must outlive it, or a number as an ostream writes it. Messages are made of these
// and not by a template over all their pieces, because the compiler would need a fifth of its time for such functions.
class MessagePart {
 public:
  MessagePart(std::string_view text) : text_(text) {}
  MessagePart(const char* text) : text_(text) {}
  MessagePart(const std::string& text) : text_(text) {}
  MessagePart(char letter) : text_(digits_, 1) { digits_[0] = letter; }
  template <std::integral Number>
    requires(sizeof(Number) > 1 || std::same_as<Number, bool>)
  MessagePart(Number number) {
    if constexpr (std::is_signed_v<Number>) {
      write(int64_t{number});
    } else {
      write(uint64_t{number});
    }
  }
  MessagePart(double number);
  MessagePart(const void* address);
  MessagePart(const MessagePart&) = delete;  // text_ may point to digits_
  MessagePart& operator=(const MessagePart&) = delete;

  std::string_view text() const { return text_; }

 private:
  void write(int64_t number);
  void write(uint64_t number);

  char digits_[24];
  std::string_view text_;
};

std::string joined(std::initializer_list<MessagePart> parts);
[[noreturn]] void throw_error(ErrorCode code, std::initializer_list<MessagePart> parts);

template <typename... Parts>
std::string concat(const Parts&... parts) {
  return joined({MessagePart(parts)...});
}

template <typename... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  throw_error(code, {MessagePart(parts)...});
}

}  // namespace tcim_lite
