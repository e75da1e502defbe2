#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tcim_lite {

using Shape = std::vector<int64_t>;

inline int64_t num_elements(const Shape& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

// "[1, 256, 64]"
inline std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace tcim_lite
