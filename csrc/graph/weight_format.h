// How the bytes of a weight are laid out (docs/hmm-format.md section 6, docs/numerics.md section 10). This table is the
// only description in C++: readers, kernels and repacking derive sizes and places from it. Python has the same table,
// tcim_lite/hmm/weight_format.py; tests/test_weight_format.py compares the two.
//
// Packed Linear weights are [N, K], or [E, N, K] for E experts, one behind the other: a row of blocks, one per 16
// outputs, each block holding all of K. A block is made of lines of 64 bytes, four bytes for each of the 16 outputs:
// byte 4*n+j of a line belongs to output n.
//   8 inputs in a line  byte j holds input j in its low nibble and input j+4 in its high one, as code + code_offset or,
//                       where that is 0, as E2M1 (sign, two bits of exponent, one of mantissa)
//   4 inputs in a line  byte j holds input j as code + code_offset
//   2 inputs in a line  fp16: 2*n+j is input j of output n; K is padded with zeros to a multiple of 2
//   1 input in a line   fp32: n is that input of output n
// The scales of a group of inputs are 16 numbers side by side, one per output. They lie behind the codes of every
// `unit_inputs` inputs, group by group, so that one stream of memory has both, or behind all codes of the block. A last
// unit that is not full has zeros in the places left; a block is padded with zeros to a multiple of 64 bytes. Outputs
// beyond N in the last block have the code 0 and the scale 1.
//
// Everything here has internal linkage and needs little of the compiler, so that kernel files can include it.
#pragma once

#include <cstdint>

#include "base/dtype_code.h"

namespace tcim_lite {

enum class WeightFormat : uint8_t {
  Dense = 0,
  LinearW4 = 1,
  LinearW8 = 2,
  LinearF16 = 3,
  LinearF32 = 4,
  LinearMxfp4 = 5,
};

constexpr int64_t kBlockOutputs = 16;
constexpr int64_t kGroup = 64;  // inputs that share a scale of activations; K of a quantised weight is a multiple
constexpr int64_t kLineBytes = 64;

// A Conv of one group with at least so many terms, outputs and pixels multiplies 16 outputs side by side on every
// instruction set, so the compiler packs its float weights.
constexpr int64_t kPackedConvTerms = 48, kPackedConvOutputs = 33, kPackedConvPixels = 32;

struct WeightLayout {
  const char* name;
  DType dtype;           // of the stored elements; UInt8 for codes. A dense weight has any
  int64_t line_inputs;   // 0: not packed
  int64_t scale_inputs;  // inputs that share a scale; 0: no codes and no scales
  DType scale_dtype;     // Float16: the scale; Int8: the exponent of 2. UInt8: none
  int64_t unit_inputs;   // inputs whose scales follow their codes; 0: all K
  int64_t code_offset;   // stored code - code; 0: stored as E2M1, whose value doubled is the code
};

// By code.
constexpr WeightLayout kWeightLayouts[] = {
    {"dense", DType::UInt8, 0, 0, DType::UInt8, 0, 0},
    {"linear_w4", DType::UInt8, 8, 64, DType::Float16, 128, 8},
    {"linear_w8", DType::UInt8, 4, 64, DType::Int8, 0, 128},
    {"linear_f16", DType::Float16, 2, 0, DType::UInt8, 0, 0},
    {"linear_f32", DType::Float32, 1, 0, DType::UInt8, 0, 0},
    {"linear_mxfp4", DType::UInt8, 8, 32, DType::Int8, 128, 0},
};
constexpr int kWeightFormats = int(sizeof(kWeightLayouts) / sizeof(kWeightLayouts[0]));

static constexpr WeightLayout layout_of(WeightFormat format) { return kWeightLayouts[int(format)]; }
static constexpr const char* name_of(WeightFormat format) { return layout_of(format).name; }
static constexpr bool is_weight_format(uint8_t code) { return code < kWeightFormats; }
static constexpr bool is_quantized(WeightFormat format) { return layout_of(format).scale_inputs > 0; }

// Whether activations may have codes of -128 (docs/numerics.md section 3). Kernels of codes with a sign of their own
// negate activations, and -128 has no negative.
static constexpr bool hides_exponents(WeightFormat format) {
  return is_quantized(format) && layout_of(format).code_offset != 0;
}

static constexpr int code_bits(WeightLayout layout) { return layout.line_inputs == 8 ? 4 : 8; }

// Bytes of the codes or floats of so many inputs of a block.
static constexpr int64_t line_bytes(WeightLayout layout, int64_t inputs) {
  return (inputs + layout.line_inputs - 1) / layout.line_inputs * kLineBytes;
}

// Bytes of the scales of so many inputs of a block.
static constexpr int64_t scale_bytes(WeightLayout layout, int64_t inputs) {
  return inputs / layout.scale_inputs * kBlockOutputs * (layout.scale_dtype == DType::Float16 ? 2 : 1);
}

// Where the codes of a group of a quantised block begin, groups counted in `scale_inputs`.
static constexpr int64_t codes_offset(WeightLayout layout, int64_t group) {
  const int64_t bytes = line_bytes(layout, layout.scale_inputs);
  if (layout.unit_inputs == 0) return group * bytes;
  const int64_t groups = layout.unit_inputs / layout.scale_inputs;
  const int64_t unit = line_bytes(layout, layout.unit_inputs) + scale_bytes(layout, layout.unit_inputs);
  return group / groups * unit + group % groups * bytes;
}

// Where its 16 scales begin, in a block of so many inputs.
static constexpr int64_t scales_offset(WeightLayout layout, int64_t inputs, int64_t group) {
  const int64_t bytes = scale_bytes(layout, layout.scale_inputs);
  if (layout.unit_inputs == 0) return line_bytes(layout, inputs) + group * bytes;
  const int64_t groups = layout.unit_inputs / layout.scale_inputs;
  const int64_t unit = line_bytes(layout, layout.unit_inputs) + scale_bytes(layout, layout.unit_inputs);
  return group / groups * unit + line_bytes(layout, layout.unit_inputs) + group % groups * bytes;
}

// Bytes from one block of 16 outputs to the next.
static constexpr int64_t block_bytes(WeightLayout layout, int64_t inputs) {
  if (layout.line_inputs == 0) return 0;
  if (layout.scale_inputs == 0) return line_bytes(layout, inputs);
  const int64_t unit = layout.unit_inputs == 0 ? inputs : layout.unit_inputs;
  const int64_t bytes = (inputs + unit - 1) / unit * (line_bytes(layout, unit) + scale_bytes(layout, unit));
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

// The code of output n (of the block) and input k (of the group), from the codes of a group.
static constexpr int32_t code_at(WeightLayout layout, const uint8_t* codes, int64_t n, int64_t k) {
  const int32_t byte = codes[k / layout.line_inputs * kLineBytes + 4 * n + k % 4];
  const int32_t stored = layout.line_inputs == 4 ? byte : k % 8 < 4 ? byte & 15 : byte >> 4;
  if (layout.code_offset != 0) return stored - int32_t(layout.code_offset);
  const int32_t bits = stored & 7;  // 0 1 2 3 4 6 8 12
  const int32_t magnitude = bits < 2 ? bits : (2 + bits % 2) << (bits / 2 - 1);
  return stored < 8 ? magnitude : -magnitude;
}

// Where the float of output n (of the block) and input k of a block lies, counted in floats.
static constexpr int64_t float_offset(WeightLayout layout, int64_t n, int64_t k) {
  return (k / layout.line_inputs * kBlockOutputs + n) * layout.line_inputs + k % layout.line_inputs;
}

static constexpr int64_t codes_offset(WeightFormat format, int64_t group) {
  return codes_offset(layout_of(format), group);
}
static constexpr int64_t scales_offset(WeightFormat format, int64_t inputs, int64_t group) {
  return scales_offset(layout_of(format), inputs, group);
}
static constexpr int64_t block_bytes(WeightFormat format, int64_t inputs) {
  return block_bytes(layout_of(format), inputs);
}

static constexpr int64_t packed_bytes(WeightFormat format, int64_t outputs, int64_t inputs) {
  return (outputs + kBlockOutputs - 1) / kBlockOutputs * block_bytes(format, inputs);
}

}  // namespace tcim_lite
