#include <cmath>

#include "backends/cpu/reference/element.h"

namespace tcim_lite::cpu {
namespace {

template <typename Row>
void few_rows(const FewRowsArgs& args) {
  const int64_t across = args.turned ? args.b_stride : 1, down = args.turned ? 1 : args.b_stride;
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t j = 0; j < args.cols; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < args.k; ++k)
        sum = std::fmaf(args.a[row * args.k + k], Row::load(args.b, j * across + k * down), sum);
      Row::store(args.y, row * args.y_stride + j, sum);
    }
  }
}

}  // namespace

void use_few_rows_ref(KernelTable& table) { enter(table.few_rows, few_rows<F16Row>, few_rows<F32Row>); }

}  // namespace tcim_lite::cpu
