#include "base/error.h"

#include <charconv>
#include <cstdio>

namespace tcim_lite {

const char* class_of(ErrorCode code) {
  static constexpr const char* kClasses[] = {"TcimError",  "HmmFormatError",   "StateError",  "ArgumentError",
                                             "ShapeError", "UnknownNameError", "DeviceError", "UnsupportedError",
                                             "TcimError",  "StrictError"};
  return kClasses[size_t(code)];
}

std::string without_nul(std::string text) {
  for (size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) text.replace(at, 1, "\\x00");
  return text;
}

Error::~Error() = default;

MessagePart::MessagePart(double number) {
  text_ = std::string_view(digits_, size_t(std::snprintf(digits_, sizeof(digits_), "%g", number)));
}

MessagePart::MessagePart(const void* address) {
  text_ = std::string_view(digits_, size_t(std::snprintf(digits_, sizeof(digits_), "%p", address)));
}

void MessagePart::write(int64_t number) {
  text_ = std::string_view(digits_, size_t(std::to_chars(digits_, digits_ + sizeof(digits_), number).ptr - digits_));
}

void MessagePart::write(uint64_t number) {
  text_ = std::string_view(digits_, size_t(std::to_chars(digits_, digits_ + sizeof(digits_), number).ptr - digits_));
}

std::string joined(std::initializer_list<MessagePart> parts) {
  size_t size = 0;
  for (const MessagePart& part : parts) size += part.text().size();
  std::string text;
  text.reserve(size);
  for (const MessagePart& part : parts) text += part.text();
  return text;
}

void throw_error(ErrorCode code, std::initializer_list<MessagePart> parts) { throw Error(code, joined(parts)); }

}  // namespace tcim_lite
