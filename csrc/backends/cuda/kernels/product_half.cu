// float16 products on the tensor cores, those of convolutions without their unfolded input: tiles of rows by columns,
// 32 terms at a time, a ring of stages in shared memory. Sums are fp32.
//
// The first operand is copied in 16 bytes. The second comes in one of these ways:
//   channels of a pixel, 8 at a time, where the input is last
//   rows of 8 or 4 halves at a time, where neighbouring columns lie together (products of matrices, 1 x 1 convolutions)
//   a tap at a time: 32 channels of one tap, so a column's place and whether it is inside are computed once a stage
//   term by term, in the order of the weights
#include "backends/cuda/kernels/mma.cuh"
#include "backends/cuda/kernels/product_end.cuh"
#include "backends/cuda/kernels/product_half.cuh"

namespace tcim_lite::cuda {
namespace {

constexpr int kThreads = 256, kDepth = kProductDepth;

enum class Source { Rows8, Rows4, Taps, Terms, Channels };
constexpr bool is_rows(Source source) { return source == Source::Rows8 || source == Source::Rows4; }
constexpr bool copies(Source source) { return is_rows(source) || source == Source::Channels; }

__device__ __forceinline__ void copy_async_half(void* shared, const void* global, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes)
               : "memory");
}

// A row of 32 halves is four chunks of 16 bytes; a chunk's place differs over 8 rows, so that a matrix is read without
// bank conflicts.
__device__ __forceinline__ int chunk_of_row(int row, int chunk) { return row * 4 + ((chunk ^ (row >> 1)) & 3); }

template <int Rows, int Columns, Source From>
struct Tile {
  static constexpr int kStages = copies(From) ? 4 : 3;
  static constexpr int kA = Rows * kDepth * 2, kB = Columns * kDepth * 2, kStage = kA + kB;
  static constexpr int kResults = Results<Rows, Columns>::kBytes;
  static constexpr int kBytes = kStages * kStage > kResults ? kStages* kStage : kResults;
  static constexpr int kRowTiles = Rows / 32, kColumnTiles = Columns / 32;  // of 16 rows and 8 columns, of a warp
};

struct Place {
  int row_tiles, column_tiles;
  bool whole_rows;  // of a: 16 bytes at a time
  EndPlace end;
};

template <int Rows, int Columns, Source From>
__global__ void __launch_bounds__(kThreads, 2) product_kernel(ProductArgs args, Place place) {
  using T = Tile<Rows, Columns, From>;
  constexpr int kStages = T::kStages;
  constexpr int kParts = kThreads / Columns, kEach = kDepth / kParts;  // threads of a column, terms of each
  extern __shared__ __align__(128) char shared[];
  wait_for_inputs();
  launch_next();
  if (is_refused(args.refused)) return;
  const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  const int first_row = int(blockIdx.x % place.row_tiles) * Rows;
  const int64_t rest = blockIdx.x / place.row_tiles, z = rest / place.column_tiles,
                first_column = rest % place.column_tiles * Columns;
  const auto* a =
      static_cast<const uint16_t*>(args.a) + (args.a_offsets != nullptr ? args.a_offsets[z] : z * args.a_next);
  const auto* b =
      static_cast<const uint16_t*>(args.b) + (args.b_offsets != nullptr ? args.b_offsets[z] : z * args.b_next);
  const auto stage_at = [&](int stage) { return shared + stage % kStages * T::kStage; };

  const auto fetch_a = [&](int stage) {
    char* to = stage_at(stage);
    for (int i = tid; i < Rows * 4; i += kThreads) {
      const int row = i / 4, k = stage * kDepth + i % 4 * 8;
      char* at = to + chunk_of_row(row, i % 4) * 16;
      const bool has_row = first_row + row < args.m;
      const uint16_t* from = a + (has_row ? (first_row + row) * args.a_stride : 0) + k;
      if (place.whole_rows) {
        const bool inside = has_row && k < args.k;
        copy_async(at, inside ? from : a, inside ? 16 : 0);
        continue;
      }
      __align__(16) uint16_t v[8];
#pragma unroll
      for (int n = 0; n < 8; ++n) v[n] = has_row && k + n < args.k ? from[n] : uint16_t(0);
      *reinterpret_cast<uint4*>(at) = *reinterpret_cast<const uint4*>(v);
    }
  };

  // Copies: a thread has the same columns in every stage.
  constexpr int kHalves = From == Source::Rows4 ? 4 : 8, kPieces = Columns / kHalves, kStep = kThreads / kPieces;
  const int piece = tid % kPieces;
  const uint16_t* piece_from = b;
  bool has_piece = false;
  if constexpr (is_rows(From)) {
    const int64_t n = first_column + piece * kHalves;
    has_piece = n < args.columns;
    if (has_piece) piece_from = b + n / args.pixels * args.b_image + n % args.pixels;
  }
  constexpr int kOwn = Columns * 4 / kThreads;
  Pixels<kOwn> own(args, b, From == Source::Channels ? first_column + tid / 4 : args.columns, kThreads / 4,
                   tid % 4 * 8);
  const auto fetch_b = [&](int stage) {
    char* to = stage_at(stage) + T::kA;
    if constexpr (From == Source::Channels) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const uint16_t* from = own.at(args, i);
        copy_async(to + chunk_of_row(tid / 4 + i * (kThreads / 4), tid % 4) * 16, from != nullptr ? from : b,
                   from != nullptr ? 16 : 0);
      }
      own.advance(args);
    } else {
#pragma unroll
      for (int row = tid / kPieces; row < kDepth; row += kStep) {
        const int k = stage * kDepth + row;
        const bool inside = has_piece && k < args.k;
        const uint16_t* from = inside ? piece_from + k * args.b_row : b;
        if constexpr (From == Source::Rows8) {
          copy_async(to + (row * kPieces + (piece ^ (row & 7))) * 16, from, inside ? 16 : 0);
        } else {
          copy_async_half(to + (row * (kPieces / 2) + ((piece / 2) ^ (row & 7))) * 16 + piece % 2 * 8, from,
                          inside ? 8 : 0);
        }
      }
    }
  };

  // Gathers: a thread has one column, and every kParts-th part of a stage's terms.
  const int column = tid % Columns, part = tid / Columns;
  const Gatherer<kEach> gatherer(args, b, first_column + column);
  const int slabs = (args.channels + kDepth - 1) / kDepth;  // stages of a tap
  uint16_t terms[kEach];
  const auto gather = [&](int stage) {
    if constexpr (From == Source::Taps)
      gatherer.take_tap(args, stage / slabs, stage % slabs * kDepth + part * kEach, terms);
    if constexpr (From == Source::Terms) gatherer.take_terms(args, stage * kDepth + part * kEach, terms);
  };
  const auto put = [&](int stage) {
    char* to = stage_at(stage) + T::kA;
#pragma unroll
    for (int i = 0; i < kEach; i += 8) {
      uint4 v;
      v.x = terms[i] | uint32_t(terms[i + 1]) << 16;
      v.y = terms[i + 2] | uint32_t(terms[i + 3]) << 16;
      v.z = terms[i + 4] | uint32_t(terms[i + 5]) << 16;
      v.w = terms[i + 6] | uint32_t(terms[i + 7]) << 16;
      *reinterpret_cast<uint4*>(to + chunk_of_row(column, (part * kEach + i) / 8) * 16) = v;
    }
  };

  const int stages = (args.k + kDepth - 1) / kDepth;
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < stages) {
      fetch_a(i);
      if constexpr (copies(From)) fetch_b(i);
    }
    commit_copies();
  }
  if constexpr (!copies(From)) {
    gather(0);
    put(0);
  }

  constexpr int kRowTiles = T::kRowTiles, kColumnTiles = T::kColumnTiles;
  const int warp_row = warp % 2 * (Rows / 2), warp_column = warp / 2 * (Columns / 4);
  float acc[kRowTiles][kColumnTiles][4] = {};
  for (int stage = 0; stage < stages; ++stage) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    const int next = stage + kStages - 1;
    if (next < stages) {
      fetch_a(next);
      if constexpr (copies(From)) fetch_b(next);
    }
    commit_copies();
    if constexpr (!copies(From)) {
      if (stage + 1 < stages) gather(stage + 1);
    }
    const char* a_at = stage_at(stage);
    const char* b_at = a_at + T::kA;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t x[kRowTiles][4], y[kColumnTiles / 2 > 0 ? kColumnTiles / 2 : 1][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i)
        load_matrix(x[i], a_at + chunk_of_row(warp_row + i * 16 + lane % 16, half * 2 + lane / 16) * 16);
#pragma unroll
      for (int j = 0; j < kColumnTiles / 2; ++j) {
        if constexpr (is_rows(From)) {
          const int row = half * 16 + lane / 8 % 2 * 8 + lane % 8, chunk = warp_column / 8 + 2 * j + lane / 16;
          load_matrix_transposed(y[j], b_at + (row * (Columns / 8) + (chunk ^ (row & 7))) * 16);
        } else {
          const int row = warp_column + j * 16 + lane / 16 * 8 + lane % 8;
          load_matrix(y[j], b_at + chunk_of_row(row, half * 2 + lane / 8 % 2) * 16);
        }
      }
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j)
          mma_half(acc[i][j], x[i][0], x[i][1], x[i][2], x[i][3], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
      }
    }
    if constexpr (!copies(From)) {
      if (stage + 1 < stages) put(stage + 1);
    }
  }

  // Rounded sums with their bias meet in shared memory, row by row of y, and leave it so.
  wait_for_copies<0>();
  __syncthreads();
  using E = Results<Rows, Columns>;
  __half* results = reinterpret_cast<__half*>(shared);
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const int row = warp_row + i * 16 + high * 8 + lane / 4;
      float bias = 0;
      if (args.end.bias != nullptr && first_row + row < args.m) bias = args.end.bias[z * args.m + first_row + row];
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        const __half2 both{to_half(acc[i][j][2 * high] + bias), to_half(acc[i][j][2 * high + 1] + bias)};
        const int to = warp_column + j * 8 + lane % 4 * 2;
        if (args.y_last) {
          results[to * E::kColumn + row] = __low2half(both);
          results[(to + 1) * E::kColumn + row] = __high2half(both);
        } else {
          *reinterpret_cast<__half2*>(results + row * E::kRow + to) = both;
        }
      }
    }
  }
  __syncthreads();
  store_results<Rows, Columns, kThreads>(args, place.end, results, z, first_row, first_column);
}

// Fewer and larger tiles read less; more of them occupy the SMs evenly.
template <typename Call>
void with_tile(const ProductArgs& args, const Call& call) {
  const auto cost = [&](int rows, int columns, double factor) {
    const int64_t tiles = int64_t((args.m + rows - 1) / rows) * ((args.columns + columns - 1) / columns) * args.count;
    return double((tiles + multiprocessors() - 1) / multiprocessors()) * rows * columns * factor;
  };
  const double large = cost(128, 128, 1.0), middle = cost(64, 128, 1.1), small = cost(64, 64, 1.4);
  if (large <= middle && large <= small)
    return call(std::integral_constant<int, 128>(), std::integral_constant<int, 128>());
  if (middle <= small) return call(std::integral_constant<int, 64>(), std::integral_constant<int, 128>());
  call(std::integral_constant<int, 64>(), std::integral_constant<int, 64>());
}

template <Source From>
void launch_from(const ProductArgs& args, Place place, cudaStream_t stream) {
  with_tile(args, [&](auto rows, auto columns) {
    constexpr int kRows = decltype(rows)::value, kColumns = decltype(columns)::value;
    place.row_tiles = (args.m + kRows - 1) / kRows;
    place.column_tiles = (args.columns + kColumns - 1) / kColumns;
    launch(product_kernel<kRows, kColumns, From>,
           dim3(unsigned(int64_t(place.row_tiles) * place.column_tiles * args.count)), dim3(kThreads),
           size_t(Tile<kRows, kColumns, From>::kBytes), stream, args, place);
  });
}

template <Source From>
void prepare_from() {
  const auto allow = [](auto kernel, int bytes) {
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  };
  allow(product_kernel<128, 128, From>, Tile<128, 128, From>::kBytes);
  allow(product_kernel<64, 128, From>, Tile<64, 128, From>::kBytes);
  allow(product_kernel<64, 64, From>, Tile<64, 64, From>::kBytes);
}

}  // namespace

void launch_product_half(const ProductArgs& args, cudaStream_t stream) {
  Place place{};
  place.whole_rows = aligned(args.a, 16) && args.a_stride % 8 == 0 && args.k % 8 == 0 && args.a_multiple % 8 == 0;
  place.end = end_place(args);
  const auto rows_of = [&](int64_t halves) {
    return !args.windows && args.b_column == 1 && aligned(args.b, halves * 2) && args.pixels % halves == 0 &&
           args.b_row % halves == 0 && args.b_image % halves == 0 && args.b_multiple % halves == 0;
  };
  if (product_last_supports(args)) return launch_product_last(args, stream);
  if (args.b_last) return launch_from<Source::Channels>(args, place, stream);
  if (rows_of(8)) return launch_from<Source::Rows8>(args, place, stream);
  if (rows_of(4)) return launch_from<Source::Rows4>(args, place, stream);
  if (!args.windows || args.by_taps) return launch_from<Source::Taps>(args, place, stream);
  launch_from<Source::Terms>(args, place, stream);
}

void prepare_product_half() {
  prepare_from<Source::Rows8>();
  prepare_from<Source::Rows4>();
  prepare_from<Source::Taps>();
  prepare_from<Source::Terms>();
  prepare_from<Source::Channels>();
}

}  // namespace tcim_lite::cuda
