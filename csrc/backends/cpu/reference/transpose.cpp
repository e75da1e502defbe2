#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

template <typename T>
void transpose(const TransposeArgs& args) {
  const auto* x = static_cast<const T*>(args.x);
  auto* y = static_cast<T*>(args.y);
  for (int64_t i = 0; i < args.rows; ++i) {
    for (int64_t j = 0; j < args.cols; ++j) y[j * args.y_stride + i] = x[i * args.x_stride + j];
  }
}

}  // namespace

void use_transpose_ref(KernelTable& table) {
  table.transpose[0] = transpose<uint16_t>;
  table.transpose[1] = transpose<uint32_t>;
}

}  // namespace tcim_lite::cpu
