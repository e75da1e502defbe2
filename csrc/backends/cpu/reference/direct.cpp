#include "backends/cpu/reference/conv_end.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kVector = 16;

template <typename Row>
void slab(const SlabArgs& args) {
  for (int64_t row = 0; row < (args.rows + kVector - 1) / kVector * kVector; ++row) {
    float* packed = args.packed + row / kVector * kSlabTerms * kVector + row % kVector;
    for (int64_t k = 0; k < args.terms; ++k)
      packed[k * kVector] = Row::load(args.weights, (row < args.rows ? row : args.rows - 1) * args.stride + k);
  }
}

void half_slab(const HalfSlabArgs& args) {
  for (int64_t vector = 0; vector < args.vectors; ++vector) {
    const uint16_t* pairs = args.weights + vector * args.stride;
    float* packed = args.packed + vector * kSlabTerms * kVector;
    for (int64_t k = 0; k < (args.terms + 1) / 2 * 2; ++k) {
      for (int64_t n = 0; n < kVector; ++n)
        packed[k * kVector + n] = F16Row::load(pairs, k / 2 * 2 * kVector + 2 * n + k % 2);
    }
  }
}

void direct(const DirectArgs& args) {
  for (int64_t pixel = 0; pixel < args.count; ++pixel) {
    for (int64_t n = 0; n < args.vectors * kVector; ++n) {
      const float* packed = args.packed + n / kVector * args.packed_stride + n % kVector;
      float& acc = args.acc[pixel * args.vectors * kVector + n];
      float sum = args.begins ? 0.0f : acc;
      for (int64_t k = 0; k < args.terms; ++k)
        sum = std::fmaf(packed[k * kVector], args.x[args.pixels[pixel] + args.offsets[k]], sum);
      acc = sum;
    }
  }
}

void direct_blocks(const DirectBlocksArgs& args) {
  direct(args.direct);
  const int64_t lanes = args.direct.vectors * kVector;
  with_block_row(args.elem, [&](auto row) {
    for (int64_t n = 0; n < lanes; ++n) {
      const float bias = args.bias && n < args.outputs ? args.bias[n] : 0.0f;
      for (int64_t i = 0; i < args.direct.count; ++i) {
        const int64_t at = n / kVector * args.y_stride + i * kVector + n % kVector;
        store_sum<decltype(row)>(args.end, args.bias ? &bias : nullptr, args.residual, args.y, at,
                                 args.direct.acc[i * lanes + n]);
      }
    }
  });
}

template <typename Row>
void turned_store(const TurnedStoreArgs& args) {
  const int64_t acc_stride = (args.rows + kVector - 1) / kVector * kVector;
  store_sums<Row>(args, [&](int64_t row, int64_t i) { return args.acc[i * acc_stride + row]; });
}

}  // namespace

void use_direct_ref(KernelTable& table) {
  enter(table.slab, slab<F16Row>, slab<F32Row>);
  table.half_slab = half_slab;
  table.direct = direct;
  table.direct_blocks = direct_blocks;
  table.packs_pixels = true;
  table.slab_floats = kSlab * kSlabTerms / 2;
  table.narrow_slab = kSlab;
  enter(table.turned_store, turned_store<F16Row>, turned_store<F32Row>);
}

}  // namespace tcim_lite::cpu
