// Where the bytes of a tensor lie: on the host, on one device, or in one slab on each of several devices.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "graph/parts.h"

namespace tcim_lite {

// How a tensor of a model for several devices is laid out. By rank.
struct Placement {
  std::vector<int> device_ids;
  int axis = kWhole;             // the axis that is cut, or kWhole: every device holds all of it
  std::vector<int64_t> extents;  // of the cut axis; empty when whole
};

// The slabs of a dense row-major tensor. The logical bytes are `rows` rows; of each row the first runs[0] bytes are on
// the first device, the next runs[1] on the second, and so on. No runs: every device holds all bytes.
struct SlabLayout {
  std::vector<int> device_ids;
  uint64_t rows = 1;
  std::vector<uint64_t> runs = {};

  static SlabLayout of(const Placement& placement, const Shape& shape, DType dtype);

  uint64_t row_bytes() const noexcept;
  // Bytes on the device of this rank, of a tensor of `total` bytes.
  uint64_t slab_bytes(size_t rank, uint64_t total) const noexcept { return runs.empty() ? total : rows * runs[rank]; }
  bool operator==(const SlabLayout&) const = default;
};

}  // namespace tcim_lite
