#include "backends/cpu/kernels/conv_end_ref.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kVector = 16;

template <Elem E>
void slab(const SlabArgs& args) {
  using Row = RefRow<E>;
  for (int64_t row = 0; row < (args.rows + kVector - 1) / kVector * kVector; ++row) {
    float* packed = args.packed + row / kVector * kSlabTerms * kVector + row % kVector;
    for (int64_t k = 0; k < args.terms; ++k)
      packed[k * kVector] = row < args.rows ? Row::load(args.weights, row * args.stride + k) : 0.0f;
  }
}

void direct(const DirectArgs& args) {
  for (int64_t pixel = 0; pixel < args.pixels; ++pixel) {
    for (int64_t n = 0; n < args.vectors * kVector; ++n) {
      const float* packed = args.packed + n / kVector * kSlabTerms * kVector + n % kVector;
      float& acc = args.acc[pixel * kSlab + n];
      float sum = args.begins ? 0.0f : acc;
      for (int64_t k = 0; k < args.terms; ++k)
        sum = std::fmaf(packed[k * kVector], args.x[pixel + args.offsets[k]], sum);
      acc = sum;
    }
  }
}

template <Elem E>
void turned_store(const TurnedStoreArgs& args) {
  using Row = RefRow<E>;
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* residual = args.residual ? Row::at(args.residual, row * args.y_stride) : nullptr;
    void* y = Row::at(args.y, row * args.y_stride);
    for (int64_t i = 0; i < args.cols; ++i) {
      float value = args.acc[i * kSlab + row];
      if (args.bias) value = value + args.bias[row];
      if (residual) value = Row::load(residual, i) + Row::round(value);
      Row::store(y, i, ended<E>(args.end, value));
    }
  }
}

}  // namespace

void use_direct_ref(KernelTable& table) {
  enter(table.slab, slab<kF16>, slab<kF32>);
  table.direct = direct;
  enter(table.turned_store, turned_store<kF16>, turned_store<kF32>);
}

}  // namespace tcim_lite::cpu
