// What the kernels of Conv, MatMul and the pools take; part of kernel_table.h, whose rules hold here too. Which is used
// when: docs/architecture.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/plan/elem.h"

namespace tcim_lite::cpu {

constexpr int64_t kPanel = 32;  // columns of a panel: elements of the result that are computed side by side

// acc[i, j] = fma(a[i, k], b[k, j], acc), k ascending from 0.
struct GemmArgs {
  const float* a;  // [rows, a_stride], k of each
  const float* b;  // [k, kPanel], 64-byte aligned
  float* acc;      // [rows, kPanel], 64-byte aligned
  int64_t rows, k, a_stride;
};

// The function behind a Conv, y = round(function(y)); kernels take those of can_end().
struct ConvEnd {
  int function = -1;  // a UnaryOp; -1: none
  float alpha = 0, beta = 0;
};
static constexpr bool can_end(int function) { return function < 0 || function == kRelu || function == kClip; }

// y[i, j] = round(acc[i, j] + bias[i]); with a residual y = round(residual + round(acc + bias)); then `end`.
struct GemmStoreArgs {
  const float* acc;      // [rows, kPanel]
  const float* bias;     // [rows] or null
  const void* residual;  // [rows, cols] T or null, of y_stride; may be y
  void* y;               // [rows, cols] T
  int64_t rows, cols, y_stride;
  ConvEnd end = {};
};

// A Conv whose lanes run across outputs: no padding of lanes where pixels are few, and taps read where they lie.
constexpr int64_t kSlab = 64;        // outputs of a slab of weights at most, in vectors of 16
constexpr int64_t kSlabTerms = 256;  // of each output at a time at most
constexpr int64_t kPackedTile = 6;   // pixels of a tile whose terms lie side by side

// packed[output / 16, k, output % 16] = weights[output, k], and those of the last output from output `rows` on.
struct SlabArgs {
  const void* weights;  // [rows, stride] T
  int64_t rows, terms, stride;
  float* packed;  // [(rows + 15) / 16, kSlabTerms, 16], 64-byte aligned
};

// The same from weights linear_f16; those of linear_f32 lie as the kernel reads them.
struct HalfSlabArgs {
  const uint16_t* weights;  // [vectors, stride]: pairs of terms, as the blocks of graph/weight_format.h
  int64_t vectors, terms, stride;
  float* packed;  // [vectors, kSlabTerms, 16], with one term more where `terms` is odd
};

// What is needed later: lines of 64 bytes are fetched meanwhile, `lines` of each row.
struct FetchArgs {
  const std::byte* first = nullptr;
  int64_t rows = 0, stride = 0;  // bytes from one row to the next
  int64_t lines = 0;
};

// sum[i, n] = fma(packed[n, k], x[pixels[i] + offsets[k]], sum), k ascending; from 0 if `begins`.
struct DirectArgs {
  const float* x;
  const int64_t* pixels;   // [count]
  const int64_t* offsets;  // [terms]
  const float* packed;     // [vectors, packed_stride]: terms of 16 outputs side by side
  int64_t packed_stride;   // floats
  float* acc;              // [count, 16 * vectors], 64-byte aligned
  int64_t terms, vectors, count;
  bool begins;
  FetchArgs fetches[3] = {};  // weights, then what is stored into and added
  int64_t step = 1;           // of pixels[i] from one pixel to the next in a row: 1 or kBlock
};

// A tensor in blocks: of each image [blocks of kBlock channels, pixels, kBlock] fp32, rounded to what the tensor is of.
// So sums of neighbouring outputs are stored, and taps of neighbouring channels read, side by side, and what is read
// several times is widened once. The last block may have more lanes than there are channels; nothing depends on those.
constexpr int64_t kBlock = 16;

// The same, and then the sums become elements of a result in blocks: y[n / 16, i, n % 16] = round(acc[i, n] + bias[n]),
// or with a residual, which lies as y, y = round(residual + round(acc + bias)); then `end`. What direct.acc holds
// afterwards is left open.
struct DirectBlocksArgs {
  DirectArgs direct;
  const float* bias;      // [outputs] or null
  const float* residual;  // [vectors, y_stride] or null
  float* y;               // likewise, from what pixels[0] makes on
  int64_t outputs;        // that there is a bias of; for the lanes behind them it is 0
  int64_t y_stride;       // floats from one block to the next
  Elem elem;              // that is rounded to
  ConvEnd end = {};
};

// A window over one block of channels. What lies outside the input is 0 for a Conv, -infinity for the largest.
struct BlockWindow {
  struct Axis {
    int64_t in, kernel, stride, pad, dilation;
  };
  Axis h, w;
  int64_t first, rows, cols;  // rows [first, first + rows) of y, of `cols`
};

// y[r, c, n] = sum over t of fma(weights[t, n], tap t of x, sum), t ascending from 0; then as GemmStoreArgs.
struct DepthwiseBlockArgs {
  BlockWindow window;
  const float* x;         // [h.in, w.in, kBlock]
  const float* weights;   // [taps, kBlock]
  const float* bias;      // [channels] or null
  const float* residual;  // [rows, cols, kBlock] or null
  float* y;               // [rows, cols, kBlock]
  int64_t channels;       // as `outputs` of DirectBlocksArgs
  Elem elem;              // likewise
  ConvEnd end = {};
};

// y[r, c, n] = the largest tap of x, t ascending.
struct PoolBlockArgs {
  BlockWindow window;
  const float* x;  // as DepthwiseBlockArgs
  float* y;
};

// As GemmStoreArgs from sums that lie the other way: acc[j, i] is that of y[i, j].
struct TurnedStoreArgs {
  const float* acc;      // [cols, rows rounded up to a multiple of 16]
  const float* bias;     // [rows] or null
  const void* residual;  // [rows, cols] T or null, of y_stride; may be y
  void* y;               // [rows, cols] T
  int64_t rows, cols, y_stride;
  ConvEnd end = {};
};

// One plane of a Conv whose groups have one channel and one output: sums over t of fma(weights[t], x[.. + offsets[t]],
// sum), t ascending from 0, of row r and column c at x + r * x_stride + c; then as GemmStoreArgs, with one bias.
struct DepthwiseArgs {
  const float* x;          // of each row of y, 16 columns more than it has may be read
  const int64_t* offsets;  // [taps]
  const float* weights;    // [taps]
  const float* bias;       // one or null
  const void* residual;    // [rows, cols] T or null
  void* y;                 // [rows, cols] T
  int64_t taps, rows, cols, x_stride;
  ConvEnd end = {};
};

// The same of neighbouring planes and a kernel of 3 x 3, with one row and one column of zeros around the input. A plane
// of `in_rows` x `in_cols` gives as many elements, or with a stride of 2 half as many rows and columns, rounded up.
struct DepthwisePlanesArgs {
  const void* x;         // [planes, in_rows, in_cols] T
  const void* weights;   // [planes, 9] T
  const float* bias;     // [planes] or null
  const void* residual;  // [planes, plane elements] T or null; its and y's first row is that of the part
  void* y;               // likewise
  int64_t planes, in_rows, in_cols, stride;
  int64_t first, rows, cols, plane;  // rows [first, first + rows) of y, of `cols`; elements from one plane to the next
  ConvEnd end = {};
};

// Columns of a panel as activations of a quantised Linear (QuantizeArgs), in groups of 64 rows.
struct PanelCodesArgs {
  const uint16_t* x;  // [k, cols] fp16
  int64_t k, cols, x_stride;
  int32_t* codes;   // [16 * groups, kPanel], 64-byte aligned: byte b of number i is the code of row 4 * i + b, and 0
                    // from row k on
  float* scales;    // [groups, kPanel] 2^e
  int32_t* starts;  // [groups, kPanel] -128 * sum of the codes, which undoes the offset of stored weights
};

// Neighbouring columns of a panel that lie in one row of an input: column j, if its bit is set, reads element
// at + j * step of a plane.
struct WindowRun {
  int64_t at;
  uint32_t columns;
};

// The same of a window: row c * taps + t is what tap t reads of plane c, and 0 in columns of none of its runs.
struct WindowCodesArgs {
  const uint16_t* x;  // fp16, x_stride from one plane to the next
  int64_t k, cols, x_stride;
  const WindowRun* runs;            // [taps, runs_of_tap]
  int64_t taps, runs_of_tap, step;  // step: 1 or 2
  int32_t* codes;                   // as PanelCodesArgs; so scales and starts
  float* scales;
  int32_t* starts;
};

constexpr int64_t kPanelBlocks = 3;  // blocks of 16 outputs whose sums are held at a time

// acc[n, j] = sum over groups of fma(float(dot), weight_scale * scale, acc), from 0, with weights LinearW8.
struct PanelQuantArgs {
  const uint8_t* weights;                   // as LinearQuantArgs
  int64_t block_stride, blocks, groups, k;  // blocks: at most kPanelBlocks; k: terms, of groups of 64
  const int32_t* codes;                     // as PanelCodesArgs; so scales and starts
  const float* scales;
  const int32_t* starts;
  float* acc;                      // [16 * blocks, kPanel], 64-byte aligned
  int64_t cols;                    // of acc; what the others of a vector of 16 hold afterwards is left open
  const uint8_t* later = nullptr;  // as many blocks that this member multiplies next, to be fetched, or null
};

// Over the taps, ascending: y = round(the largest), or y = round(sum / counts). A tap of row r and column c is at
// x + r * x_stride + c + its offset.
struct PoolArgs {
  const float* x;          // as DepthwiseArgs; what lies outside is -infinity for the largest, 0 for the sum
  const int64_t* offsets;  // [taps]
  const float* counts;     // [rows, cols] for the mean, null for the largest
  void* y;                 // [rows, cols] T
  int64_t taps, rows, cols, x_stride;
};

// The largest of windows of 3 x 3 with a stride of two, of planes where they lie: all inside, or with one element of
// padding.
struct PoolPlanesArgs {
  const void* x;                     // [planes, in_rows, in_cols] T, in_cols even if padded
  void* y;                           // [planes, rows, cols] T
  int64_t planes, in_rows, in_cols;  // at least 3 unless padded
  int64_t rows, cols;                // (in_rows + 1) / 2 and in_cols / 2 if padded, else (in_rows - 1) / 2 and likewise
  bool padded;
};

}  // namespace tcim_lite::cpu
