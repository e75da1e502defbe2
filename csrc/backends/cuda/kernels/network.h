// Kernels of the ops over dense tensors, which networks from ONNX are made of: what they compute and the functions that
// launch them. As kernels.h, which holds the rest. Tensors have no rows that are not live; every kernel whose `refused`
// is given does nothing when *refused is not 0.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "graph/plan/steps.h"

namespace tcim_lite::cuda {

struct UnaryArgs {
  const void* x;
  void* y;
  int64_t count;
  float alpha, beta;
  const int* refused;
};
void launch_unary(UnaryOp op, Elem elem, const UnaryArgs& args, cudaStream_t stream);

// y[i, j, ..] = op(operands[i * stride, ..]), y dense.
struct BroadcastArgs {
  const void* operands[3];
  void* y;
  int64_t count;
  int axes;
  int64_t extents[kMaxAxes];
  int64_t strides[3][kMaxAxes];
  const int* refused;
};
// `op` is an ElementwiseOp or BroadcastSpec::kWhere.
void launch_broadcast(int op, Elem elem, const BroadcastArgs& args, cudaStream_t stream);
// The same of int32.
void launch_integers(int op, const BroadcastArgs& args, cudaStream_t stream);

// Dense rows of `cols`.
struct VectorArgs {
  const void* x;
  void* y;
  int64_t rows, cols;
  const int* refused;
};
void launch_reduce(ReduceOp op, Elem elem, const VectorArgs& args, cudaStream_t stream);
// The same of int32.
void launch_reduced_integers(ReduceOp op, const VectorArgs& args, cudaStream_t stream);
void launch_softmax(Elem elem, const VectorArgs& args, bool log, cudaStream_t stream);
// weight and bias [cols], or null.
void launch_layer_norm(Elem elem, const VectorArgs& args, const float* weight, const float* bias, float epsilon,
                       cudaStream_t stream);
// y holds the values, `indices` their places: [rows, chosen] each.
void launch_top_k(Elem elem, const VectorArgs& args, int* indices, int64_t chosen, bool largest, cudaStream_t stream);

// One box of a MoveSpec: elements of `bytes`, 1 to 16.
struct BoxArgs {
  const void* x;  // from here on
  void* y;
  int64_t count;
  int axes;
  int64_t extents[kMaxAxes], x_strides[kMaxAxes], y_strides[kMaxAxes];
  const int* refused;
};
void launch_box(int64_t bytes, const BoxArgs& args, cudaStream_t stream);
// `count` elements that are the low `bytes` of `bits`.
void launch_fill(int64_t bytes, void* y, int64_t count, uint32_t bits, const int* refused, cudaStream_t stream);

// y[o, i, n] = x[o, indices[i], n].
struct GatherArgs {
  const void* x;
  const int* indices;
  void* y;
  int64_t outer, extent, count, inner;
  const int* refused;
};
void launch_gather(int64_t bytes, const GatherArgs& args, cudaStream_t stream);

// y[o, i, n] = sum over t of weights[i, t] * x[o, indices[i, t], n].
struct ResampleArgs {
  const void* x;
  const int* indices;
  const float* weights;
  void* y;
  int64_t outer, extent, count, inner, taps;
  const int* refused;
};
void launch_resample(Elem elem, const ResampleArgs& args, cudaStream_t stream);

// y [batch, 3, out_h, out_w], pixel by pixel as `resizer_pixel` says.
struct ResizerArgs {
  const uint8_t* image;  // [batch / parts, image_bytes]
  const int32_t* crops;  // [batch, kCropNumbers], or null: `crop`
  const float* colours;  // [3, kColourNumbers]
  void* y;
  int64_t batch, parts, image_bytes;
  int32_t crop[kCropNumbers];
  ResizerForm form;
  const int* refused;
};
void launch_resizer(Elem elem, const ResizerArgs& args, cudaStream_t stream);

// y = x, from int32 rounded to T, or from T without its fraction to int32.
struct CastArgs {
  const void* x;
  void* y;
  int64_t count;
  const int* refused;
};
void launch_cast(Elem from, Elem to, const CastArgs& args, cudaStream_t stream);

struct WindowAxis {
  int in, out, kernel, stride, pad, dilation, upsample;
};
struct WindowArgs {
  WindowAxis h, w;
};

struct PoolArgs {
  const void* x;  // [planes, h.in, w.in]
  void* y;        // [planes, h.out, w.out]
  WindowArgs window;
  int64_t planes;
  bool mean, counts_pads;
  int64_t extent_h, extent_w;
  const int* refused;
};
void launch_pool(Elem elem, const PoolArgs& args, cudaStream_t stream);
// x and y last, of `channels`, a multiple of 8.
void launch_pool_last(const PoolArgs& args, int channels, cudaStream_t stream);

// What happens to sums before they are elements of y: a bias, a residual and a function, with every rounding of the ops
// that were fused.
struct ConvEnd {
  const float* bias;     // [groups * outputs], or null
  const void* residual;  // as y, or null
  int function;          // a UnaryOp, or -1
  float alpha, beta;
};

// "Last": the channels of a tensor are its last axis, [batch, h, w, channels]. Of fp16.
struct ConvArgs {
  const void* x;        // [batch, groups * channels, h.in, w.in]
  const void* weights;  // [groups * outputs, channels * taps] of T
  void* y;              // [batch, groups * outputs, h.out, w.out]
  WindowArgs window;
  int batch, groups, channels, outputs;
  bool x_last, y_last;
  ConvEnd end;
  const int* refused;
};
// Any convolution; a thread computes an element. For few terms and few outputs of a group.
void launch_conv_direct(Elem elem, const ConvArgs& args, cudaStream_t stream);

// Products of matrices, y[z] = a[z] b[z], where b may be what the windows of a convolution read: column n is output
// pixel n % pixels of image n / pixels, and row k is term k of the pixel.
struct ProductArgs {
  const void* a;  // [m, k] of T, rows of a_stride
  const void* b;
  void* y;
  int count;          // z
  int m, k, columns;  // columns: of all images
  int64_t a_stride;
  int pixels;                              // columns of an image
  int64_t b_row, b_image, y_row, y_image;  // elements to the next
  int64_t b_column = 1;                    // likewise, where there are no windows; of the pixels of a `b_last`
  int64_t a_next, b_next, y_next;          // of z, where there are no offsets
  const int64_t *a_offsets, *b_offsets;    // [z] elements, or null
  int64_t a_multiple, b_multiple;          // what every z's offset is a multiple of; 0: they are 0
  bool windows;                            // b is read through windows; otherwise rows of `pixels`
  WindowArgs window;
  bool by_taps;  // rows of a are [taps, channels] (ProductLayout)
  int channels;  // terms of a tap; all without windows
  // b is last: columns are pixels of `channels` halves, a multiple of 8, and rows of a are [taps, channels]. y is last:
  // [columns, m], m a multiple of 8.
  bool b_last, y_last;
  int first;    // column 0 is this one of y
  ConvEnd end;  // bias [z, m]
  const int* refused;
};
// float32 by FMA, k ascending.
void launch_product_float(const ProductArgs& args, cudaStream_t stream);

// float16 on the tensor cores. Weights of a convolution are laid out for it once: by taps, [m, taps, channels], or as
// they are with rows padded to a multiple of 32.
struct ProductLayout {
  int64_t tap;  // halves of a tap, its channels and zeros; 0: not by taps
  int64_t row;  // halves of a row
};
ProductLayout product_layout(int64_t channels, int64_t taps, bool x_last);
// Whether an input that is not last is best copied into one that is, its channels padded with zeros to a multiple of 8:
// where products would find it term by term.
bool wants_channels_last(int64_t channels, int64_t taps);
void launch_channels_last(const void* x, void* to, int64_t images, int64_t channels, int64_t pixels,
                          cudaStream_t stream);
// False: weights are read as they are.
bool needs_layout(int64_t channels, int64_t taps);
void launch_product_layout(const void* weights, void* to, int64_t rows, int64_t channels, int64_t taps,
                           const ProductLayout& layout, cudaStream_t stream);
// With windows, `a` is laid out, or k is a multiple of 8 and there is one tap.
void launch_product_half(const ProductArgs& args, cudaStream_t stream);
void prepare_product_half();
// The same on Hopper's matrix instructions, where b is last.
bool product_last_supports(const ProductArgs& args);
void launch_product_last(const ProductArgs& args, cudaStream_t stream);
void prepare_product_last();  // after prepare_linear_wgmma()

// 8-bit weights as float16 numbers, [m, k], for launch_product_last(). *inexact becomes 1 where one is none.
void launch_dequantise(const void* weights, void* to, int64_t m, int64_t k, int* inexact, cudaStream_t stream);
// Every 64 neighbours as the codes of a quantised Linear times their power of two, which are float16 numbers; y may be
// x.
void launch_round_groups(const void* x, void* y, int64_t count, cudaStream_t stream);

// What output pixels [first, first + rows) of all images read: x [rows, inputs], inputs padded with zeros to a multiple
// of 64. Of fp16.
void launch_unfold(const ConvArgs& args, void* x, int64_t first, int64_t rows, int64_t inputs, cudaStream_t stream);
// Channels-last sums [rows, outputs], with the bias and rounded, of these pixels become elements of y.
void launch_fold_end(const ConvArgs& args, const void* sums, int64_t first, int64_t rows, cudaStream_t stream);

}  // namespace tcim_lite::cuda
