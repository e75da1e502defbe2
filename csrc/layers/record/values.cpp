#include "layers/record/values.h"

#include <cstring>

namespace tcim_lite::layers {
std::optional<int64_t> only_value(DType dtype, std::span<const std::byte> content) {
  using enum DType;
  const bool is_signed = dtype == Int8 || dtype == Int16 || dtype == Int32 || dtype == Int64;
  if (!is_signed && dtype != UInt8 && dtype != UInt16 && dtype != UInt32) return std::nullopt;
  if (content.size() != size_t(size_of(dtype))) return std::nullopt;
  uint64_t bits = 0;
  std::memcpy(&bits, content.data(), content.size());  // the lowest of them
  const size_t above = 64 - 8 * content.size();
  return is_signed ? int64_t(bits << above) >> above : int64_t(bits);
}

std::span<const std::byte> elements_of(const ArrayView& array, std::vector<std::byte>& room) {
  const auto item = size_t(size_of(array.dtype));
  const size_t bytes = size_t(array.elements()) * item;
  if (array.is_dense()) return {array.data, bytes};
  room.resize(bytes);
  std::vector<int64_t> index(array.shape.size(), 0);
  for (size_t done = 0; done < bytes; done += item) {
    const std::byte* element = array.data;
    for (size_t axis = 0; axis < index.size(); ++axis) element += index[axis] * array.strides[axis];
    std::memcpy(room.data() + done, element, item);
    for (size_t axis = index.size(); axis-- > 0 && ++index[axis] == array.shape[axis];) index[axis] = 0;
  }
  return room;
}

}  // namespace tcim_lite::layers
