#include "layers/record/values.h"

#include <cstring>

namespace tcim_lite::layers {
namespace {

template <typename Element>
std::optional<int64_t> only_element(std::span<const std::byte> content) {
  Element element;
  if (content.size() != sizeof(element)) return std::nullopt;
  std::memcpy(&element, content.data(), sizeof(element));
  return int64_t(element);
}

}  // namespace

std::optional<int64_t> only_value(DType dtype, std::span<const std::byte> content) {
  switch (dtype) {
    case DType::Int8:
      return only_element<int8_t>(content);
    case DType::UInt8:
      return only_element<uint8_t>(content);
    case DType::Int16:
      return only_element<int16_t>(content);
    case DType::UInt16:
      return only_element<uint16_t>(content);
    case DType::Int32:
      return only_element<int32_t>(content);
    case DType::UInt32:
      return only_element<uint32_t>(content);
    case DType::Int64:
      return only_element<int64_t>(content);
    default:
      return std::nullopt;
  }
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
