// Reads fields one after the other and refuses to leave its bytes. Every failure is Error(Format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace tcim_lite::hmm {

// UTF-8 without NUL, as text; `what` names it in messages.
std::string decode_text(std::span<const std::byte> bytes, const std::string& what);

class Cursor {
 public:
  // `label` names the bytes in messages.
  Cursor(std::span<const std::byte> bytes, std::string label) : bytes_(bytes), label_(std::move(label)) {}

  const std::string& label() const noexcept { return label_; }
  size_t remaining() const noexcept { return bytes_.size() - position_; }

  std::span<const std::byte> take(uint64_t count, std::string_view what);

  template <typename T>
  T get(std::string_view what) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  // A u32 count of things that take at least `item_bytes` each: what passes may be allocated.
  uint32_t count(uint32_t limit, uint32_t item_bytes, std::string_view what);

  std::vector<uint32_t> ids(uint32_t count, std::string_view what);

  // A string of section 1.
  std::string text(uint32_t limit, std::string_view what);

  // Nothing may follow.
  void end() const;

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
  std::string label_;
};

}  // namespace tcim_lite::hmm
