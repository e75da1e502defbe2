// Conv with lanes across outputs: each pixel is multiplied with 16 to 64 outputs' weights, from wherever its taps lie.
#include "backends/cpu/kernels/conv/conv_end.h"

namespace tcim_lite::cpu {
namespace {

// Pixels times vectors of a tile: its sums leave registers for the weights of a term and a pixel.
#if defined(__AVX512F__)
constexpr int kTile = 28, kMostVecs = 4, kUnrolled = 1;
constexpr int kFetches = 1;
constexpr bool kAnyPixels = false;  // there are fewer registers for addresses than pixels: those of a tile lie in a row
#else
constexpr int kTile = 6, kMostVecs = 1, kUnrolled = 4;
constexpr bool kAnyPixels = true;
#endif
#if defined(__AVX2__) && !defined(__AVX512F__)
constexpr int kFetches = 3;
// Two vectors of weights share a first cache of 32 KB with the pixels of their terms, a line or more of each plane.
constexpr int64_t kSlabFloats = 128 * 32, kNarrowSlab = 32;
#elif !defined(__AVX512F__)
constexpr int kFetches = 0;
#endif
constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

constexpr int64_t kVecTerms = kSlabTerms * kLanes;  // of a slab's weights from one vector to the next

// The lines that tiles fetch, one row at a term: each tile its share, so that they come evenly.
class Fetch {
 public:
  explicit Fetch(const DirectArgs& args) : args_(args.fetches), tiles_(args.count * args.vectors) {
    for (int i = 0; i < kFetches; ++i) lines_ += args_[i].lines;
  }

  void begin_tile(int64_t pixels, int64_t vectors) {
    done_ += pixels * vectors;
    end_ = lines_ * done_ / tiles_;
  }
  bool is_done() const { return line_ >= end_; }
  // The next line of rows as a fetch of one line.
  FetchArgs next() {
    while (line_ - before_ >= args_->lines) before_ += (args_++)->lines;
    return {args_->first + 64 * (line_++ - before_), args_->rows, args_->stride, 1};
  }

 private:
  const FetchArgs* args_;
  int64_t tiles_, lines_ = 0, done_ = 0, line_ = 0, end_ = 0, before_ = 0;
};

// Where sums become elements of blocks: right from the registers they were summed in.
struct Blocks {
  const DirectBlocksArgs& args;
  BlockEnd end;

  // Of one vector at pixels [first, first + Pixels).
  template <int Pixels>
  __attribute__((always_inline)) void store_all(Vec (&sums)[Pixels], int64_t first, int64_t vector) const {
    if (args.bias) {
      const Vec bias = load_bias(args.bias + vector * kLanes, args.outputs - vector * kLanes);
#pragma GCC unroll 14
      for (int p = 0; p < Pixels; ++p) sums[p] = sums[p] + bias;
    }
    const int64_t at = place(first, vector);
    end.store_all(sums, args.residual ? args.residual + at : nullptr, args.y + at);
  }

  // What the tile after the next adds. AVX-512, where it was not timed, leaves that to the processor.
  template <int Pixels>
  __attribute__((always_inline)) void fetch_residual(int64_t first, int64_t vector) const {
    if (kFetches == 1 || !args.residual) return;
    const float* at = args.residual + place(first + 2 * Pixels, vector);
#pragma GCC unroll 14
    for (int p = 0; p < Pixels; ++p) prefetch_near(at + p * kLanes);
  }

  int64_t place(int64_t pixel, int64_t vector) const { return vector * args.y_stride + pixel * kLanes; }
};

// A function of its own: what surrounds it would take registers from the addresses of its pixels. Step: as args.step,
// where pixels lie in a row. The sums go to args.acc, or to `blocks` unless it is null.
template <int Step, int Pixels, int Vecs>
__attribute__((noinline)) void tile(const DirectArgs& args, Fetch& fetch, int64_t first, int64_t vector,
                                    const Blocks* blocks) {
  const int64_t packed_stride = args.packed_stride;
  const float* packed = args.packed + vector * packed_stride;
  const int64_t acc_stride = args.vectors * kLanes;
  float* acc = args.acc + first * acc_stride + vector * kLanes;
  const float* at[Pixels];
  Vec sums[Pixels][Vecs];
#pragma GCC unroll 14
  for (int p = 0; p < Pixels; ++p) {
    at[p] = args.x + args.pixels[first + (kAnyPixels ? p : 0)] + (kAnyPixels ? 0 : p * Step);
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) sums[p][v] = args.begins ? broadcast(0.0f) : load(acc + p * acc_stride + v * kLanes);
  }
  const int64_t* offsets = args.offsets;
  const auto multiply = [&](int64_t k) __attribute__((always_inline)) {
    const int64_t offset = offsets[k];
    Vec weights[Vecs];
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) weights[v] = load(packed + v * packed_stride + k * kLanes);
#pragma GCC unroll 14
    for (int p = 0; p < Pixels; ++p) {
      const Vec pixel = broadcast(kAnyPixels ? at[p][offset] : at[0][offset + p * Step]);
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) sums[p][v] = fma(weights[v], pixel, sums[p][v]);
    }
  };
  int64_t k = 0;
  if (blocks) {
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) blocks->fetch_residual<Pixels>(first, vector + v);
  }
  fetch.begin_tile(Pixels, Vecs);
  while (k < args.terms && !fetch.is_done()) {
    FetchArgs line = fetch.next();
    for (const int64_t end = least(args.terms, k + line.rows); k < end; ++k, line.first += line.stride) {
      prefetch_far(line.first);
      multiply(k);
    }
  }
#pragma GCC unroll kUnrolled
  for (; k < args.terms; ++k) multiply(k);
  if (blocks) {
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) {
      Vec of_vector[Pixels];
#pragma GCC unroll 14
      for (int p = 0; p < Pixels; ++p) of_vector[p] = sums[p][v];
      blocks->store_all(of_vector, first, vector + v);
    }
    return;
  }
#pragma GCC unroll 14
  for (int p = 0; p < Pixels; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) store(acc + p * acc_stride + v * kLanes, sums[p][v]);
  }
}

template <int Step, int Vecs, int Pixels>
void pixels_left(const DirectArgs& args, Fetch& fetch, int64_t pixels, int64_t first, int64_t vector,
                 const Blocks* blocks) {
  if constexpr (Pixels > 0) {
    if (pixels >= Pixels) return tile<Step, Pixels, Vecs>(args, fetch, first, vector, blocks);
    pixels_left<Step, Vecs, Pixels - 1>(args, fetch, pixels, first, vector, blocks);
  }
}

// Tiles of about the same size: with one of few pixels the latency of an fma would show.
template <int Step, int Vecs>
void vectors(const DirectArgs& args, Fetch& fetch, int64_t first, int64_t end, int64_t vector, const Blocks* blocks) {
  constexpr int kMost = int(least(kTile / Vecs, 14));
  const int64_t tiles = (end - first + kMost - 1) / kMost, fewest = (end - first) / tiles;
  for (int64_t larger = (end - first) % tiles; first < end; --larger) {
    const int64_t pixels = fewest + (larger > 0);
    pixels_left<Step, Vecs, kMost>(args, fetch, pixels, first, vector, blocks);
    first += pixels;
  }
}

// Pixels that tiles may share.
template <int Step>
void run_of_pixels(const DirectArgs& args, Fetch& fetch, int64_t first, int64_t end, const Blocks* blocks) {
  int64_t vector = 0;
  if constexpr (kMostVecs >= 4 && Step > 1) {  // few pixels side by side in planes are rare
    if (args.vectors == 4 && end - first <= kTile / 4) return vectors<Step, 4>(args, fetch, first, end, 0, blocks);
  }
  if constexpr (kMostVecs >= 2) {
    for (; vector + 2 <= args.vectors; vector += 2) vectors<Step, 2>(args, fetch, first, end, vector, blocks);
  }
  for (; vector < args.vectors; ++vector) vectors<Step, 1>(args, fetch, first, end, vector, blocks);
}

template <int Step>
void runs_of_pixels(const DirectArgs& args, const Blocks* blocks) {
  Fetch fetch(args);
  for (int64_t first = 0, end = 0; first < args.count; first = end) {
    end = kAnyPixels ? args.count : first + 1;
    while (end < args.count && args.pixels[end] == args.pixels[end - 1] + Step) ++end;
    run_of_pixels<Step>(args, fetch, first, end, blocks);
  }
}

void tiles(const DirectArgs& args, const Blocks* blocks) {
  if (kAnyPixels || args.step == 1) return runs_of_pixels<1>(args, blocks);
  if constexpr (!kAnyPixels) runs_of_pixels<int(kBlock)>(args, blocks);
}

void direct(const DirectArgs& args) { tiles(args, nullptr); }

void direct_blocks(const DirectBlocksArgs& args) {
  const Blocks blocks{args, BlockEnd(args.end, args.elem)};
  tiles(args.direct, &blocks);
}

template <typename T>
void slab(const SlabArgs& args) {
  const T* weights = static_cast<const T*>(args.weights);
  const int64_t stride = args.stride;
  float* packed = args.packed;
  for (int64_t row = 0; row < args.rows; row += kLanes, weights += kLanes * stride, packed += kVecTerms) {
    const int64_t rows = least(kLanes, args.rows - row);
    turn_rows(rows, args.terms, [=](int64_t i) { return weights + i * stride; }, packed, kLanes);
  }
}

void half_slab(const HalfSlabArgs& args) {
  for (int64_t vector = 0; vector < args.vectors; ++vector) {
    const uint16_t* pairs = args.weights + vector * args.stride;
    float* packed = args.packed + vector * kVecTerms;
    for (int64_t k = 0; k < args.terms; k += 2) {
      Vec even, odd;
      split(load(pairs + k * kLanes), load(pairs + (k + 1) * kLanes), even, odd);
      store(packed + k * kLanes, even);
      store(packed + (k + 1) * kLanes, odd);
    }
  }
}

[[maybe_unused]] constexpr int64_t kColumnsAhead = 32;  // whose lines are fetched while some are stored

// Columns [col, col + 16), or as many as there are, of `rows` rows from `row` on. What the loop needs lies in locals: a
// store might change what args or a closure refer to.
template <typename T, typename Lanes>
void store_turned(const TurnedStoreArgs& args, EndOf<T> end, int64_t row, int64_t rows, int64_t col, Lanes lanes) {
  const int64_t cols = __is_same(Lanes, Full) ? kLanes : args.cols - col, stride = args.y_stride;
  const int64_t acc_stride = (args.rows + kLanes - 1) / kLanes * kLanes;
  const float* acc = args.acc + col * acc_stride + row;
  alignas(64) Vec sums[kLanes];
  load_turned([&](int64_t i) { return acc + least(i, cols - 1) * acc_stride; }, Full{}, sums);
  const float* bias = args.bias ? args.bias + row : nullptr;
  const T* residual = args.residual ? static_cast<const T*>(args.residual) + row * stride : nullptr;
  T* y = static_cast<T*>(args.y) + row * stride;
  for (int64_t i = 0; i < rows; ++i, y += stride) {
#if defined(__AVX2__) && !defined(__AVX512F__)  // a fetch of what does not exist has no effect
    if (residual) prefetch_near(residual + col + kColumnsAhead);
    prefetch_near(y + col + kColumnsAhead);
#endif
    end.store_sum(sums[i], bias, residual, y, col, lanes);
    if (bias) ++bias;
    if (residual) residual += stride;
  }
}

template <typename T>
void turned_store(const TurnedStoreArgs& args) {
  const EndOf<T> end(args.end);
  for (int64_t row = 0; row < args.rows; row += kLanes) {
    const int64_t rows = least(kLanes, args.rows - row);
    for_lanes(args.cols, [&](int64_t col, auto lanes) { store_turned<T>(args, end, row, rows, col, lanes); });
  }
}

}  // namespace

void TCIM_LITE_USE(direct)(KernelTable& table) {
  enter(table.slab, slab<uint16_t>, slab<float>);
  table.half_slab = half_slab;
  table.direct = direct;
  table.direct_blocks = direct_blocks;
  table.packs_pixels = kAnyPixels;
#if defined(__AVX2__) && !defined(__AVX512F__)
  table.slab_floats = kSlabFloats;
  table.narrow_slab = kNarrowSlab;
#endif
  enter(table.turned_store, turned_store<uint16_t>, turned_store<float>);
}

}  // namespace tcim_lite::cpu
