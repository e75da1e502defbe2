// How the bytes of a weight are laid out (docs/hmm-format.md section 6, docs/numerics.md section 6).
//
// Packed Linear weights are [N, K]: a row of blocks, one per 16 outputs, each block holding all of K. Outputs beyond N
// in the last block have zero codes. One block is: codes, then scales, padded to 64 bytes; LinearW4 has both in pairs
// of groups.
//   LinearW4   codes: per 8 inputs 64 bytes; byte 4*n+j holds, as code + 8, input j of output n in its low nibble and
//              input j+4 in its high one. scales: 16 fp16 per group of 64 inputs, behind the codes of every two groups,
//              so that one stream of memory has both. A last group without a second has its place filled with zeros.
//   LinearW8   codes: per 4 inputs 64 bytes; byte 4*n+j holds input j of output n, as code + 128. scales: per 64 inputs
//              16 int8 exponents.
//   LinearF16  per 2 inputs 64 bytes: fp16 2*n+j is input j of output n. K is padded with zeros to a multiple of 2.
//   LinearF32  per input 64 bytes: fp32 n is that input of output n.
#pragma once

#include <cstdint>
#include <string_view>

namespace tcim_lite {

enum class WeightFormat : uint8_t { Dense = 0, LinearW4 = 1, LinearW8 = 2, LinearF16 = 3, LinearF32 = 4 };

constexpr int64_t kBlockOutputs = 16;
constexpr int64_t kGroup = 64;  // inputs that share a scale

constexpr bool is_weight_format(uint8_t code) { return code <= 4; }
constexpr bool is_quantized(WeightFormat format) {
  return format == WeightFormat::LinearW4 || format == WeightFormat::LinearW8;
}

constexpr std::string_view name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::Dense:
      return "dense";
    case WeightFormat::LinearW4:
      return "linear_w4";
    case WeightFormat::LinearW8:
      return "linear_w8";
    case WeightFormat::LinearF16:
      return "linear_f16";
    case WeightFormat::LinearF32:
      return "linear_f32";
  }
  return "?";
}

// Where the codes of a group of a quantised block begin.
constexpr int64_t codes_offset(WeightFormat format, int64_t group) {
  return format == WeightFormat::LinearW4 ? group / 2 * 1088 + group % 2 * 512 : group * 1024;
}

// Where its 16 scales begin: fp16 or int8.
constexpr int64_t scales_offset(WeightFormat format, int64_t inputs, int64_t group) {
  return format == WeightFormat::LinearW4 ? group / 2 * 1088 + 1024 + group % 2 * 32 : inputs * 16 + group * 16;
}

// Bytes from one block of 16 outputs to the next.
constexpr int64_t block_bytes(WeightFormat format, int64_t inputs) {
  switch (format) {
    case WeightFormat::LinearW4:
      return (inputs / kGroup + 1) / 2 * 1088;
    case WeightFormat::LinearW8:
      return (inputs * 16 + inputs / kGroup * 16 + 63) / 64 * 64;
    case WeightFormat::LinearF16:
      return (inputs + 1) / 2 * 64;
    case WeightFormat::LinearF32:
      return inputs * 64;
    case WeightFormat::Dense:
      break;
  }
  return 0;
}

constexpr int64_t packed_bytes(WeightFormat format, int64_t outputs, int64_t inputs) {
  return (outputs + kBlockOutputs - 1) / kBlockOutputs * block_bytes(format, inputs);
}

}  // namespace tcim_lite
