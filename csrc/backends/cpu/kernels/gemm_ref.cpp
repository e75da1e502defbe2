#include "backends/cpu/kernels/conv_end_ref.h"

namespace tcim_lite::cpu {
namespace {

void gemm(const GemmArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t j = 0; j < kPanel; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < args.k; ++k)
        sum = std::fmaf(args.a[row * args.a_stride + k], args.b[k * kPanel + j], sum);
      args.acc[row * kPanel + j] = sum;
    }
  }
}

template <Elem E>
void gemm_store(const GemmStoreArgs& args) {
  using Row = RefRow<E>;
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* residual = args.residual ? Row::at(args.residual, row * args.y_stride) : nullptr;
    void* y = Row::at(args.y, row * args.y_stride);
    for (int64_t i = 0; i < args.cols; ++i) {
      float value = args.acc[row * kPanel + i];
      if (args.bias) value = value + args.bias[row];
      if (residual) value = Row::load(residual, i) + Row::round(value);
      Row::store(y, i, ended<E>(args.end, value));
    }
  }
}

}  // namespace

void use_gemm_ref(KernelTable& table) {
  table.gemm = gemm;
  enter(table.gemm_store, gemm_store<kF16>, gemm_store<kF32>);
}

}  // namespace tcim_lite::cpu
