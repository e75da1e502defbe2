// Linear kernels: every instruction set against ref bit for bit, and ref against a straight-line computation.
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "backends/cpu/dispatch.h"
#include "base/half.h"
#include "check.h"
#include "graph/weight_format.h"
#include "guarded_buffer.h"

using namespace tcim_lite;
using namespace tcim_lite::cpu;

namespace {

std::mt19937 g_random(7);
int uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(g_random); }

struct Shape {
  int64_t rows, blocks, groups;
};

// Extreme: bytes and activations are the least or the most of all; Same: those of a block, of a group. Near: random,
// with scales of activations as near each other as in a model, and groups of zeros. Those of Random are anywhere.
enum class Values { Random, Extreme, Same, Near };

const std::vector<WeightFormat> kQuantised = [] {
  std::vector<WeightFormat> formats;
  for (int code = 0; code < kWeightFormats; ++code) {
    if (is_quantized(WeightFormat(code))) formats.push_back(WeightFormat(code));
  }
  return formats;
}();

bool is_random(Values values) { return values == Values::Random || values == Values::Near; }

// Inputs that share a scale of weights.
int64_t scale_inputs(WeightFormat format) { return layout_of(format).scale_inputs; }

// Made once: each asks the CPU what it has, which a hypervisor answers slowly.
const std::vector<std::pair<std::string, KernelTable>>& all_tables() {
  static const std::vector<std::pair<std::string, KernelTable>> all = [] {
    std::vector<std::pair<std::string, KernelTable>> tables;
    for (const std::string& isa : available_isas()) {
      tables.emplace_back(isa, make_table(isa, {.fetch = WeightFetch::Usual}));
      if (isa == "ref") continue;
      tables.emplace_back(isa + " for Intel", make_table(isa, {.fetch = WeightFetch::PastPage}));
      tables.emplace_back(isa + " for Zen 5", make_table(isa, {.fetch = WeightFetch::IntoFirst}));
    }
    return tables;
  }();
  return all;
}

// A normal positive fp16, over the whole range of exponents.
uint16_t random_scale() { return uint16_t(uniform(1, 30) << 10 | uniform(0, 1023)); }

struct QuantCase {
  WeightFormat format;
  Shape shape;
  int64_t stride;
  GuardedBuffer<uint8_t> weights;
  GuardedBuffer<int8_t> codes;
  GuardedBuffer<float> scales;
  GuardedBuffer<int32_t> sums;

  QuantCase(WeightFormat format_, Shape shape_, Values values)
      : format(format_),
        shape(shape_),
        stride(block_bytes(format, shape.groups * kGroup)),
        weights(stride * shape.blocks, 64),
        codes(shape.rows * shape.groups * kGroup, 64),
        scales(shape.rows * shape.groups),
        sums(shape.rows * shape.groups) {
    for (int64_t block = 0; block < shape.blocks; ++block) {
      uint8_t* at = weights.data() + block * stride;
      const int same = 255 * uniform(0, 1);
      for (int64_t i = 0; i < stride; ++i)
        at[i] = uint8_t(is_random(values) ? uniform(0, 255) : values == Values::Same ? same : 255 * uniform(0, 1));
      for (int64_t i = 0; i < shape.groups * kGroup / scale_inputs(format) * kBlockOutputs; ++i) {
        uint8_t* scales = at + scales_offset(format, shape.groups * kGroup, i / 16);
        if (layout_of(format).scale_dtype == DType::Float16) {
          reinterpret_cast<uint16_t*>(scales)[i % 16] = random_scale();
        } else {
          const int exponent = is_random(values) ? uniform(-30, 9) : uniform(-126, 80);
          scales[i % 16] = uint8_t(int8_t(exponent));
        }
      }
    }
    for (int64_t i = 0; i < scales.size(); ++i) {
      const bool zeros = values == Values::Near && uniform(0, 7) == 0;
      const int highest = i / shape.groups % 26 - 16;  // of the row
      scales[i] = std::ldexp(
          1.0f, zeros || values == Values::Random ? uniform(-30, zeros ? -30 : 9) : uniform(highest - 14, highest));
      sums[i] = 0;
      const int lowest = hides_exponents(format) ? -128 : -127;
      const int sign = uniform(0, 1) ? 127 : lowest;
      for (int64_t k = 0; k < kGroup; ++k) {
        const int code = zeros ? 0 : is_random(values) ? uniform(lowest, 127) : sign;
        codes[i * kGroup + k] = int8_t(code);
        sums[i] += code;
      }
    }
  }

  LinearQuantArgs args(GuardedBuffer<float>& acc, int64_t acc_stride) const {
    return {weights.data(), stride,      shape.blocks, shape.groups, codes.data(),
            scales.data(),  sums.data(), shape.rows,   acc.data(),   acc_stride};
  }

  // The signed code of weight (output, input), by the text of weight_format.h.
  int code(int64_t output, int64_t input) const {
    const uint8_t* block = weights.data() + output / 16 * stride;
    const int64_t n = output % 16;
    if (format == WeightFormat::LinearW8) return int(block[input / 4 * 64 + 4 * n + input % 4]) - 128;
    const int pair = block[input / 128 * 1088 + input % 128 / 8 * 64 + 4 * n + input % 4];
    const int nibble = input % 8 < 4 ? pair % 16 : pair / 16;
    if (format == WeightFormat::LinearW4) return nibble - 8;
    constexpr int kE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    return kE2m1[nibble];
  }
  double scale(int64_t output, int64_t group) const {
    const uint8_t* block = weights.data() + output / 16 * stride;
    const int64_t n = output % 16;
    if (format == WeightFormat::LinearW8) return std::ldexp(1.0, int8_t(block[shape.groups * 1024 + group * 16 + n]));
    if (format == WeightFormat::LinearMxfp4)
      return std::ldexp(1.0, int8_t(block[group / 4 * 1088 + 1024 + group % 4 * 16 + n]));
    return half_to_float(reinterpret_cast<const uint16_t*>(block + group / 2 * 1088 + 1024)[group % 2 * 16 + n]);
  }
};

// The product is exact in double, the sum of a 48-bit and a 24-bit number is not always: one double rounding away from
// fmaf is possible but would need a tie at bit 53, so std::fma in float is used with exactly representable operands.
void check_against_spec(const QuantCase& c, const GuardedBuffer<float>& acc, int64_t acc_stride) {
  for (int64_t row = 0; row < c.shape.rows; ++row) {
    for (int64_t output = 0; output < c.shape.blocks * 16; ++output) {
      float expected = 0.0f;
      const int64_t inputs = scale_inputs(c.format);
      for (int64_t group = 0; group < c.shape.groups * kGroup / inputs; ++group) {
        int dot = 0;
        for (int64_t k = group * inputs; k < (group + 1) * inputs; ++k) {
          dot += c.code(output, k) * c.codes[row * c.shape.groups * kGroup + k];
        }
        const double scale = c.scale(output, group) * c.scales[row * c.shape.groups + group * inputs / kGroup];
        expected = std::fma(float(dot), float(scale), expected);
      }
      CHECK_EQ(std::bit_cast<uint32_t>(acc[row * acc_stride + output]), std::bit_cast<uint32_t>(expected));
      if (g_check_failures > 5) return;
    }
  }
}

void check_quantised(WeightFormat format, Shape shape, Values values) {
  const QuantCase c(format, shape, values);
  const int64_t acc_stride = shape.blocks * 16 + 16 * uniform(0, 1);
  GuardedBuffer<float> expected(shape.rows * acc_stride, 64);
  const auto check = [&](std::string_view isa, LinearQuantKernel kernel, const std::byte* arranged = nullptr,
                         std::byte* scratch = nullptr) {
    GuardedBuffer<float> acc(shape.rows * acc_stride, 64);
    LinearQuantArgs args = c.args(acc, acc_stride);
    args.arranged = arranged;
    args.scratch = scratch;
    kernel(args);
    if (acc.same_bytes(expected)) return;
    report_failure(__FILE__, __LINE__,
                   concat(name_of(format), " on ", isa, ": rows ", shape.rows, ", blocks ", shape.blocks, ", groups ",
                          shape.groups, values == Values::Random ? "" : ", extreme"));
  };
  const auto check_arranged = [&](std::string_view isa, const ArrangedKernels& kernels) {
    const int64_t bytes = kernels.row_bytes(shape.groups);
    GuardedBuffer<std::byte> arranged(shape.rows * bytes, 64), scratch(kernels.scratch_bytes, 64);
    kernels.arrange({c.codes.data(), c.scales.data(), arranged.data(), 1, shape.groups});
    kernels.arrange({c.codes.data() + shape.groups * kGroup, c.scales.data() + shape.groups, arranged.data() + bytes,
                     shape.rows - 1, shape.groups});
    check(isa, kernels.multiply, arranged.data(), scratch.data());
  };
  for (const auto& [isa, table] : all_tables()) {
    const LinearKernels& linear = table.linear[int(format)];
    if (isa == "ref") {
      linear.quantised(c.args(expected, acc_stride));
      if (shape.rows * shape.blocks * shape.groups < 600) check_against_spec(c, expected, acc_stride);
    } else {
      check(isa, linear.quantised);
      if (shape.rows <= kFewRows && shape.rows >= linear.few_from) check(isa, linear.few);
      check(isa, linear.many);
      if (linear.arranged.arrange != nullptr && (shape.rows > 1 || linear.arranged.from == 1))
        check_arranged(isa, linear.arranged);
    }
  }
}

// Weights of every float kernel: LinearF16 and LinearF32 with any K, dequantised ones with K = 64 * groups.
void check_float(WeightFormat format, int64_t rows, int64_t blocks, int64_t cols) {
  const int64_t stride = block_bytes(format, cols);
  const int64_t x_stride = cols + uniform(0, 3);
  const int64_t acc_stride = blocks * 16 + 16 * uniform(0, 1);
  GuardedBuffer<uint8_t> weights(stride * blocks, 64);
  GuardedBuffer<float> x((rows - 1) * x_stride + cols);
  std::normal_distribution<float> normal;
  for (float& value : x) value = normal(g_random) * std::ldexp(1.0f, uniform(-20, 5));
  const QuantCase codes(is_quantized(format) ? format : WeightFormat::LinearW8, {1, blocks, (cols + 63) / 64},
                        Values::Random);
  if (is_quantized(format)) {
    std::memcpy(weights.data(), codes.weights.data(), size_t(stride * blocks));
  } else if (format == WeightFormat::LinearF16) {
    for (int64_t i = 0; i < stride * blocks / 2; ++i) {
      const float value = normal(g_random) * std::ldexp(1.0f, uniform(-22, 0));  // some are subnormal
      reinterpret_cast<uint16_t*>(weights.data())[i] = float_to_half(value);
    }
  } else {
    for (int64_t i = 0; i < stride * blocks / 4; ++i) reinterpret_cast<float*>(weights.data())[i] = normal(g_random);
  }
  GuardedBuffer<float> expected(rows * acc_stride, 64);
  for (const auto& [isa, table] : all_tables()) {
    GuardedBuffer<float> own(rows * acc_stride, 64);
    GuardedBuffer<float>& acc = isa == "ref" ? expected : own;
    const LinearFloatArgs args{weights.data(), stride, blocks, cols, x.data(), x_stride, rows, acc.data(), acc_stride};
    table.linear[int(format)].floats(args);
    if (!acc.same_bytes(expected)) {
      report_failure(__FILE__, __LINE__,
                     concat(name_of(format), " float on ", isa, ": rows ", rows, ", blocks ", blocks, ", K ", cols));
    }
  }
  // ref against a plain loop over one element at a time.
  const int64_t row = rows - 1, output = blocks * 16 - 1;
  float sum = 0.0f;
  for (int64_t k = 0; k < cols; ++k) {
    const uint8_t* block = weights.data() + (blocks - 1) * stride;
    float weight;
    if (format == WeightFormat::LinearF16) {
      weight = half_to_float(reinterpret_cast<const uint16_t*>(block + k / 2 * 64)[2 * 15 + k % 2]);
    } else if (format == WeightFormat::LinearF32) {
      weight = reinterpret_cast<const float*>(block + k * 64)[15];
    } else {
      weight = float(codes.code(output, k)) * float(codes.scale(output, k / scale_inputs(format)));
    }
    sum = std::fma(weight, x[row * x_stride + k], sum);
  }
  CHECK_EQ(std::bit_cast<uint32_t>(expected[row * acc_stride + output]), std::bit_cast<uint32_t>(sum));
}

}  // namespace

int main() {
  for (const WeightFormat format : kQuantised) {
    for (int64_t rows = 1; rows <= 17; ++rows) {
      for (int64_t blocks = 1; blocks <= 9; ++blocks) {
        for (const int64_t groups : {1, 2, 3}) check_quantised(format, {rows, blocks, groups}, Values::Random);
      }
    }
    for (const int64_t rows : {1, 2, 3, 4, 5, 7, 12, 13, 24, 25, 31, 64, 100}) {
      for (const int64_t blocks : {1, 2, 3}) {
        check_quantised(format, {rows, blocks, 16}, Values::Random);
        check_quantised(format, {rows, blocks, 11}, Values::Random);
        check_quantised(format, {rows, blocks, 3}, Values::Extreme);
        check_quantised(format, {rows, blocks, 3}, Values::Same);
        check_quantised(format, {rows, blocks, 19}, Values::Near);
      }
    }
    check_quantised(format, {7, 2, 48}, Values::Random);
    check_quantised(format, {100, 3, 48}, Values::Extreme);
    check_quantised(format, {131, 3, 17}, Values::Near);
  }
  for (const WeightFormat format : {WeightFormat::LinearF16, WeightFormat::LinearF32}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13, 31}) {
      for (int64_t blocks = 1; blocks <= 9; ++blocks) {
        for (const int64_t cols : {1, 2, 3, 7, 64, 259}) check_float(format, rows, blocks, cols);
      }
    }
    check_float(format, 64, 3, 1000);
  }
  for (const WeightFormat format : kQuantised) {
    for (const int64_t rows : {1, 2, 7}) {
      for (const int64_t cols : {64, 192}) check_float(format, rows, 3, cols);
    }
  }
  return check_result();
}
