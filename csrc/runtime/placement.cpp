#include "runtime/placement.h"

#include <functional>
#include <numeric>

namespace tcim_lite {

SlabLayout SlabLayout::of(const Placement& placement, const Shape& shape, DType dtype) {
  SlabLayout layout;
  layout.device_ids = placement.device_ids;
  if (placement.axis == kWhole) return layout;
  const auto axis = shape.begin() + placement.axis;
  layout.rows = uint64_t(std::accumulate(shape.begin(), axis, int64_t{1}, std::multiplies<>()));
  const int64_t inner = std::accumulate(axis + 1, shape.end(), int64_t{size_of(dtype)}, std::multiplies<>());
  for (const int64_t extent : placement.extents) layout.runs.push_back(uint64_t(extent * inner));
  return layout;
}

uint64_t SlabLayout::row_bytes() const noexcept { return std::accumulate(runs.begin(), runs.end(), uint64_t{0}); }

}  // namespace tcim_lite
