#include "hmm/cursor.h"

namespace tcim_lite::hmm {
namespace {

constexpr size_t kValid = SIZE_MAX;

// The first byte that is not UTF-8 (no overlong forms, no surrogates, at most U+10FFFF), or kValid.
size_t find_invalid_utf8(std::span<const std::byte> bytes) {
  const auto at = [&](size_t i) { return i < bytes.size() ? std::to_integer<uint32_t>(bytes[i]) : 0u; };
  for (size_t i = 0; i < bytes.size();) {
    const uint32_t lead = at(i);
    size_t size = 1;
    uint32_t low = 0x80, high = 0xbf;  // of the second byte
    if (lead >= 0xc2 && lead <= 0xdf) {
      size = 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
      size = 3;
      if (lead == 0xe0) low = 0xa0;
      if (lead == 0xed) high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
      size = 4;
      if (lead == 0xf0) low = 0x90;
      if (lead == 0xf4) high = 0x8f;
    } else if (lead >= 0x80) {
      return i;
    }
    if (size > 1 && (at(i + 1) < low || at(i + 1) > high)) return i;
    for (size_t k = 2; k < size; ++k) {
      if (at(i + k) < 0x80 || at(i + k) > 0xbf) return i;
    }
    i += size;
  }
  return kValid;
}

}  // namespace

std::string decode_text(std::span<const std::byte> bytes, const std::string& what) {
  const size_t invalid = find_invalid_utf8(bytes);
  if (invalid != kValid) fail(ErrorCode::Format, what, " is not UTF-8 (byte ", invalid, ")");
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.find('\0') != std::string::npos) fail(ErrorCode::Format, what, " contains a NUL");
  return text;
}

std::span<const std::byte> Cursor::take(uint64_t count, std::string_view what) {
  if (count > remaining())
    fail(ErrorCode::Format, label_, " is cut off: ", what, " needs ", count, " bytes at byte ", position_, ", ",
         remaining(), " are left; write the file again");
  const auto taken = bytes_.subspan(position_, size_t(count));
  position_ += size_t(count);
  return taken;
}

uint32_t Cursor::count(uint32_t limit, uint32_t item_bytes, std::string_view what) {
  const auto count = get<uint32_t>(concat("the number of ", what));
  if (count > limit) fail(ErrorCode::Format, label_, " says ", count, " ", what, ", the limit is ", limit);
  const uint64_t bytes = uint64_t{count} * item_bytes;
  if (bytes > remaining())
    fail(ErrorCode::Format, label_, " says ", count, " ", what, ", which take at least ", bytes, " bytes; ",
         remaining(), " are left");
  return count;
}

std::vector<uint32_t> Cursor::ids(uint32_t count, std::string_view what) {
  const auto bytes = take(uint64_t{count} * 4, what);
  std::vector<uint32_t> ids(count);
  if (count != 0) std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

std::string Cursor::text(uint32_t limit, std::string_view what) {
  const auto bytes = get<uint32_t>(concat("the length of ", what));
  if (bytes > limit) fail(ErrorCode::Format, label_, ": ", what, " has ", bytes, " bytes, the limit is ", limit);
  return decode_text(take(bytes, what), concat(label_, ": ", what));
}

void Cursor::end() const {
  if (remaining() != 0) fail(ErrorCode::Format, label_, " has ", remaining(), " bytes after its end");
}

}  // namespace tcim_lite::hmm
