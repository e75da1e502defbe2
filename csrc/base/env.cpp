#include "base/env.h"

#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace tcim_lite {

std::optional<std::string> env_text(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<int64_t> env_int(const char* name, int64_t low, int64_t high) {
  const auto text = env_text(name);
  if (!text) return std::nullopt;
  int64_t number = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < low || number > high) {
    fail(ErrorCode::Argument, name, "='", *text, "': expected a whole number from ", low, " to ", high);
  }
  return number;
}

bool env_is(const char* name, const char* yes, const char* no) {
  const auto text = env_text(name);
  if (!text || *text == no) return false;
  if (*text != yes) fail(ErrorCode::Argument, name, "='", *text, "': expected ", yes, " or ", no);
  return true;
}

}  // namespace tcim_lite
