#include "runtime/strided_copy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "runtime/convert.h"

namespace tcim_lite {
namespace {

constexpr int64_t kBlock = 512;  // elements gathered at a time
constexpr int64_t kNoLimit = int64_t(1) << 62;

int64_t product(std::span<const int64_t> extents) {
  int64_t count = 1;
  for (const int64_t extent : extents) count *= extent;
  return count;
}

bool dense(std::span<const int64_t> shape, std::span<const int64_t> strides, int64_t item) {
  int64_t stride = item;
  for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) {
    if (shape[axis] != 1 && strides[axis] != stride) return false;
  }
  return true;
}

// Walks an array in row-major order. Axes that are contiguous in memory are merged first, which makes the runs along
// the innermost axis as long as possible.
template <typename Byte>
class Cursor {
 public:
  Cursor(Byte* data, std::span<const int64_t> shape, std::span<const int64_t> strides) : at_(data) {
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == 1) continue;
      if (!axes_.empty() && axes_.back().stride == strides[axis] * shape[axis]) {
        axes_.back() = {axes_.back().extent * shape[axis], strides[axis], 0};
      } else {
        axes_.push_back({shape[axis], strides[axis], 0});
      }
    }
    if (axes_.empty()) axes_.push_back({1, 0, 0});
  }

  Byte* at() const noexcept { return at_; }
  int64_t stride() const noexcept { return axes_.back().stride; }
  int64_t run() const noexcept { return axes_.back().extent - axes_.back().index; }

  void advance(int64_t count) noexcept {  // count <= run()
    axes_.back().index += count;
    at_ += count * axes_.back().stride;
    for (size_t axis = axes_.size() - 1; axis > 0 && axes_[axis].index == axes_[axis].extent; --axis) {
      at_ += axes_[axis - 1].stride - axes_[axis].extent * axes_[axis].stride;
      axes_[axis].index = 0;
      ++axes_[axis - 1].index;
    }
  }

 private:
  struct Axis {
    int64_t extent, stride, index;
  };
  std::vector<Axis> axes_;
  Byte* at_;
};

template <typename Element>
void move_typed(std::byte* target, int64_t target_stride, const std::byte* source, int64_t source_stride,
                int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Element element;
    std::memcpy(&element, source + i * source_stride, sizeof(Element));
    std::memcpy(target + i * target_stride, &element, sizeof(Element));
  }
}

void move_elements(std::byte* target, int64_t target_stride, const std::byte* source, int64_t source_stride,
                   int64_t count, int64_t item) {
  switch (item) {
    case 1:
      return move_typed<uint8_t>(target, target_stride, source, source_stride, count);
    case 2:
      return move_typed<uint16_t>(target, target_stride, source, source_stride, count);
    case 4:
      return move_typed<uint32_t>(target, target_stride, source, source_stride, count);
    default:
      return move_typed<uint64_t>(target, target_stride, source, source_stride, count);
  }
}

using Block = std::array<std::byte, kBlock * 8>;

// The next `count` elements of the cursor as a dense run: in place, or gathered into `block`.
const std::byte* gathered(const Cursor<const std::byte>& cursor, int64_t count, int64_t item, Block& block) {
  if (cursor.stride() == item || count == 1) return cursor.at();
  move_elements(block.data(), item, cursor.at(), cursor.stride(), count, item);
  return block.data();
}

void check_values(const ArrayView& source, DType dtype, FindMisfit find_misfit, std::string_view what) {
  const int64_t item = size_of(source.dtype);
  Cursor<const std::byte> cursor(source.data, source.shape, source.strides);
  alignas(64) Block block;
  for (int64_t left = source.elements(); left > 0;) {
    const int64_t count = std::min({left, cursor.run(), kBlock});
    const std::byte* run = gathered(cursor, count, item, block);
    if (const int64_t bad = find_misfit(run, count); bad >= 0) {
      fail(ErrorCode::Argument, what, ": value ", element_text(source.dtype, run + bad * item), " (",
           name_of(source.dtype), ") does not fit ", name_of(dtype),
           has_fraction(source.dtype, run + bad * item) ? ": it is not whole; round first (numpy.rint)" : "");
    }
    cursor.advance(count);
    left -= count;
  }
}

}  // namespace

int64_t ArrayView::elements() const noexcept { return product(shape); }

bool ArrayView::is_dense() const noexcept { return dense(shape, strides, size_of(dtype)); }

void copy_array(const ArrayView& source, const MutableArrayView& target, std::string_view what) {
  const Conversion rule = conversion(source.dtype, target.dtype);
  const int64_t from = size_of(source.dtype), to = size_of(target.dtype);
  if (rule.find_misfit != nullptr) check_values(source, target.dtype, rule.find_misfit, what);
  if (source.is_dense() && dense(target.shape, target.strides, to)) {
    rule.convert(source.data, target.data, source.elements());
    return;
  }
  Cursor<const std::byte> read(source.data, source.shape, source.strides);
  Cursor<std::byte> write(target.data, target.shape, target.strides);
  alignas(64) Block gather_block, convert_block;
  for (int64_t left = source.elements(); left > 0;) {
    const bool direct = read.stride() == from && write.stride() == to;
    const int64_t count = std::min({left, read.run(), write.run(), direct ? kNoLimit : kBlock});
    const std::byte* run = gathered(read, count, from, gather_block);
    if (write.stride() == to || count == 1) {
      rule.convert(run, write.at(), count);
    } else {
      rule.convert(run, convert_block.data(), count);
      move_elements(write.at(), write.stride(), convert_block.data(), to, count, to);
    }
    read.advance(count);
    write.advance(count);
    left -= count;
  }
}

void copy_to_dense(const ArrayView& source, DType dtype, std::byte* target, std::string_view what) {
  if (source.is_dense()) {
    const Conversion rule = conversion(source.dtype, dtype);
    if (rule.find_misfit != nullptr) check_values(source, dtype, rule.find_misfit, what);
    rule.convert(source.data, target, source.elements());
    return;
  }
  const int64_t shape[1] = {source.elements()}, strides[1] = {size_of(dtype)};
  copy_array(source, {target, dtype, shape, strides}, what);
}

}  // namespace tcim_lite
