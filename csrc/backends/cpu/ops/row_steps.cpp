#include "backends/cpu/ops/row_steps.h"

#include <cstring>

namespace tcim_lite::cpu {
namespace {

std::byte* row_of(const RunContext& context, const Rows& x, int64_t row, Elem elem) {
  return context.at(x.value) + row * x.stride * elem_bytes(elem);
}

}  // namespace

void RmsNormStep::run(const RunContext& context) const {
  const int64_t cols = x.cols / groups;
  for_rows(context, context.rows_of(x), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      context.kernels.rms_norm[elem](
          {row_of(context, x, row, elem), row_of(context, y, row, elem), weight, groups, cols, cols, cols, epsilon});
    }
  });
}

template <>
void PlainStep<ElementwiseSpec>::run(const RunContext& context) const {
  for_rows(context, context.rows_of(y), [&](int64_t begin, int64_t end, int) {
    context.kernels.elementwise[op][elem]({row_of(context, a, begin, elem), row_of(context, b, begin, elem),
                                           row_of(context, y, begin, elem), end - begin, y.cols, a.stride, b.stride,
                                           y.stride});
  });
}

template <>
void PlainStep<SiluMulSpec>::run(const RunContext& context) const {
  for_rows(context, context.rows_of(y), [&](int64_t begin, int64_t end, int) {
    const SiluMulArgs args{
        row_of(context, x, begin, elem), row_of(context, y, begin, elem), end - begin, y.cols, x.stride, y.stride};
    if (clamped()) return context.kernels.clamped_glu[elem]({args, alpha, limit});
    if (gelu) return context.kernels.gelu_mul[elem](args);
    context.kernels.silu_mul[elem](args);
  });
}

template <>
void PlainStep<GatherRowSpec>::run(const RunContext& context) const {
  const int64_t row = context.length(current) - 1;
  std::memcpy(context.at(y.value), row_of(context, x, row, elem), y.cols * elem_bytes(elem));
}

template <>
void PlainStep<CopySpec>::run(const RunContext& context) const {
  for_rows(context, context.rows_of(x), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const std::byte* source = row_of(context, x, row, from);
      std::byte* target = row_of(context, y, row, to);
      if (from == to) {
        std::memcpy(target, source, y.cols * elem_bytes(to));
      } else if (to == kF32) {
        context.kernels.widen[from]({source, reinterpret_cast<float*>(target), 1, y.cols, y.cols, y.cols, 1.0f});
      } else {
        context.kernels.narrow[to]({reinterpret_cast<const float*>(source), target, 1, y.cols, y.cols, y.cols});
      }
    }
  });
}

}  // namespace tcim_lite::cpu
