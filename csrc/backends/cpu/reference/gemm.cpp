#include "backends/cpu/reference/conv_end.h"

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

template <typename Row>
void gemm_store(const GemmStoreArgs& args) {
  store_sums<Row>(args, [&](int64_t row, int64_t i) { return args.acc[row * kPanel + i]; });
}

}  // namespace

void use_gemm_ref(KernelTable& table) {
  table.gemm = gemm;
  enter(table.gemm_store, gemm_store<F16Row>, gemm_store<F32Row>);
}

}  // namespace tcim_lite::cpu
