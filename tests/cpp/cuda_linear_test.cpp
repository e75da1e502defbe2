// Linears on a GPU against the CPU backend, and against exact sums: every format, number of rows, epilogue and range of
// scales. Needs a GPU; without one the program says so and exits with 77.
#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "backends/backend.h"
#include "check.h"
#include "cuda_compare.h"
#include "graph_maker.h"

using namespace tcim_lite;
using namespace tcim_lite::test;

namespace {

// Where Hopper's tensor cores multiply many rows, each weight of 4 bits is rounded to fp16 (docs/cuda.md).
Limit sums_of(WeightFormat format, int64_t rows) {
  const char* wgmma = std::getenv("TCIM_LITE_CUDA_WGMMA");
  const bool exact = wgmma != nullptr && std::string_view(wgmma) == "off";
  if (format != WeightFormat::LinearW4 || rows <= 8 || exact) return kSums;
  return {kSums.steps, kSums.norm, std::ldexp(1.0, -9)};
}

void test_linear_of_every_format_and_number_of_rows() {
  for (const WeightFormat format : kHalfFormats) {
    for (const int64_t rows : {1, 2, 7, 8, 9, 33, 64, 130, 256}) {
      for (const auto& [inputs, outputs] :
           {std::pair<int64_t, int64_t>{64, 50}, {192, 336}, {1024, 4096}, {3072, 1000}}) {
        if (rows * inputs * outputs > 300'000'000) continue;
        GraphMaker maker(DType::Float16, uint32_t(rows));
        const uint32_t y = maker.linear(maker.input({1, rows, inputs}), outputs, format, rows % 2 == 0);
        check(concat("Linear ", name_of(format), " ", rows, " x ", inputs, " -> ", outputs), maker, {y},
              sums_of(format, rows));
      }
    }
  }
}

// Of many rows. On a GPU of 132 multiprocessors these are all shapes of tiles that the kernel for Hopper chooses among
// (linear_wgmma.cu), with and without splits of the inputs.
void test_linear_of_many_rows_with_every_epilogue() {
  for (const WeightFormat format : kHalfFormats) {
    for (const auto& [rows, inputs, outputs] : {std::array<int64_t, 3>{9, 4096, 512},
                                                {129, 320, 3008},
                                                {200, 1024, 1056},
                                                {300, 64, 4128},
                                                {70, 64, 14016},
                                                {90, 64, 17024},
                                                {100, 2048, 3008},
                                                {9, 2048, 2080},
                                                {9, 2048, 4128},
                                                {9, 4096, 2080},
                                                {70, 4096, 3008},
                                                {70, 4096, 8000},
                                                {70, 4096, 9024}}) {
      GraphMaker maker(DType::Float16, uint32_t(rows));
      const uint32_t x = maker.input({1, rows, inputs}), other = maker.input({1, rows, outputs});
      const auto what = concat("Linears ", name_of(format), " ", rows, " x ", inputs, " -> ", outputs);
      check(what, maker, {maker.linear(x, outputs, format, rows % 2 == 0)}, sums_of(format, rows));
      if (rows * inputs * outputs > 1'000'000'000) continue;
      const uint32_t sum = maker.add(other, maker.linear(x, outputs, format));
      const uint32_t inner = maker.silu_mul(maker.linear(x, outputs, format, rows % 2 != 0));
      check(what, maker, {sum, inner}, {0, 1e-3});
    }
  }
}

void test_linears_beyond_fp16_saturate() {
  for (const WeightFormat format : {WeightFormat::LinearW4, WeightFormat::LinearF16}) {
    GraphMaker maker(DType::Float16);
    uint32_t x = maker.input({1, 20, 1024});
    for (int i = 0; i < 12; ++i) x = maker.linear(x, 1024, format);
    check(concat("saturated ", name_of(format)), maker, {x}, roundings(format));
  }
}

void test_linear_of_fp32_tensors() {
  for (const WeightFormat format : {WeightFormat::LinearF32, WeightFormat::LinearF16, WeightFormat::LinearW4,
                                    WeightFormat::LinearW8, WeightFormat::LinearMxfp4}) {
    for (const int64_t rows : {1, 5, 20}) {
      GraphMaker maker(DType::Float32);
      check(concat("Linear fp32 ", name_of(format), " ", rows), maker,
            {maker.linear(maker.input({1, rows, 128}), 100, format, true)}, kSums);
    }
  }
}

// Scales at the ends of what a package may hold: their products with codes leave fp16's range, or lose bits in it.
void test_linears_of_extreme_scales() {
  for (const int64_t rows : {9, 200}) {
    for (const int exponent : {-124, -27, -23, -21, 4, 5, 6, 9}) {
      GraphMaker maker(DType::Float16, uint32_t(exponent + 200));
      uint32_t x = maker.input({1, rows, 128});
      maker.set_scales(0.01f, -20);
      if (exponent > 0) x = maker.linear(x, 128, WeightFormat::LinearW8);
      maker.set_scales(0.01f, exponent);
      const uint32_t y = maker.linear(x, 400, WeightFormat::LinearW8);
      check(concat("exponents of weights to 2^", exponent, ", rows ", rows), maker, {y},
            exponent > 0 ? roundings(WeightFormat::LinearW8) : kSums);
    }
    for (const float scale : {6.2e-5f, 2000.0f, 3500.0f, 20000.0f}) {
      GraphMaker maker(DType::Float16, uint32_t(scale + 2));
      uint32_t x = maker.input({1, rows, 128});
      maker.set_scales(0.01f, -20);
      if (scale > 1) x = maker.linear(x, 128, WeightFormat::LinearW8);
      maker.set_scales(scale, -10);
      const uint32_t y = maker.linear(x, 400, WeightFormat::LinearW4);
      check(concat("scales of weights from ", scale, ", rows ", rows), maker, {y},
            scale > 1 ? roundings(WeightFormat::LinearW4) : sums_of(WeightFormat::LinearW4, rows));
    }
  }
}

void test_linears_with_groups_of_zeros() {
  for (const WeightFormat format : {WeightFormat::LinearW4, WeightFormat::LinearW8}) {
    GraphMaker maker(DType::Float16);
    maker.set_scales(1e-4f, -20, true);
    const uint32_t y = maker.linear(maker.input({1, 130, 448}), 400, format);
    check(concat("groups of zeros ", name_of(format)), maker, {y}, sums_of(format, 130));
  }
}

// Of more rows than decode streams, behind norms as long as no launch of one piece a thread takes.
void test_linears_behind_long_norms() {
  for (const int64_t inputs : {4160, 8192, 8256}) {
    GraphMaker maker(DType::Float16, uint32_t(inputs));
    const uint32_t x = maker.rms_norm(maker.input({1, 20, inputs}));
    check(concat("norm of ", inputs), maker,
          {maker.linear(x, 64, WeightFormat::LinearW4), maker.linear(x, 48, WeightFormat::LinearW8)},
          roundings(WeightFormat::LinearW4));
  }
}

// A row of x as codes times their powers of two (docs/numerics.md section 3).
std::vector<double> quantised(const float* x, int64_t inputs) {
  std::vector<double> values(size_t(inputs), 0.0);
  for (int64_t first = 0; first < inputs; first += kGroup) {
    float amax = 0;
    for (int64_t k = first; k < first + kGroup; ++k) amax = std::max(amax, std::fabs(x[k]));
    const int exponent = amax > 0 ? std::clamp(std::ilogb(amax) - 6, -30, 9) : -30;
    for (int64_t k = first; k < first + kGroup; ++k) {
      const double code = std::nearbyint(std::clamp(std::ldexp(double(x[k]), -exponent), -127.0, 127.0));
      values[size_t(k)] = std::ldexp(code, exponent);
    }
  }
  return values;
}

// |y - sum| <= (2^-11 + 2 gamma_K) sum |terms| and half a step of y, and 2^-11 of the terms' norm in the mean.
void test_weights_of_four_bits_are_rounded_by_half_a_step_at_most() {
  constexpr WeightLayout kLayout = layout_of(WeightFormat::LinearW4);
  for (const auto& [rows, inputs, outputs] :
       {std::array<int64_t, 3>{9, 1024, 96}, {130, 192, 400}, {256, 1024, 336}, {64, 4096, 64}}) {
    GraphMaker maker(DType::Float16, uint32_t(rows));
    const uint32_t y = maker.linear(maker.input({1, rows, inputs}), outputs, WeightFormat::LinearW4);
    Graph& graph = maker.graph();
    graph.outputs = {y};
    Side gpu(cuda_backend(), maker, graph, 5, Placing::NearDevice);
    gpu.run();
    const std::vector<float> x = gpu.state(0), results = gpu.output(0);
    const auto* weights = reinterpret_cast<const uint8_t*>(maker.weights()[0].data());
    std::vector<double> row_of_weights(static_cast<size_t>(inputs));
    double squares = 0, terms = 0;
    int64_t wrong = 0;
    for (int64_t n = 0; n < outputs; ++n) {
      const uint8_t* block = weights + n / 16 * block_bytes(kLayout, inputs);
      for (int64_t k = 0; k < inputs; ++k) {
        uint16_t scale;
        std::memcpy(&scale, block + scales_offset(kLayout, inputs, k / kGroup) + n % 16 * 2, 2);
        const int32_t code = code_at(kLayout, block + codes_offset(kLayout, k / kGroup), n % 16, k % kGroup);
        row_of_weights[size_t(k)] = code * double(half_to_float(scale));
      }
      for (int64_t row = 0; row < rows; ++row) {
        const std::vector<double> values = quantised(x.data() + row * inputs, inputs);
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < inputs; ++k) {
          const double term = values[size_t(k)] * row_of_weights[size_t(k)];
          sum += term, magnitude += std::fabs(term), terms += term * term;
        }
        const double off = std::fabs(results[size_t(row * outputs + n)] - sum) - std::ldexp(std::fabs(sum), -11);
        const double gamma = double(inputs) * std::ldexp(1.0, -24);
        wrong += !(off <= (std::ldexp(1.0, -11) + 2 * gamma) * magnitude);
        squares += off > 0 ? off * off : 0;
      }
    }
    const double mean = std::sqrt(squares / terms);
    if (wrong > 0 || !(mean <= std::ldexp(1.0, -11)))
      report_failure(__FILE__, __LINE__, concat(rows, " x ", inputs, ": ", wrong, " beyond the bound, mean ", mean));
    std::cout << "weights of 4 bits " << rows << " x " << inputs << " -> " << outputs << ": mean " << mean << "\n";
  }
}

// y without its step's results as an output, which a kernel may then leave quantised, and with them.
void check_same_bits(const std::string& what, GraphMaker& maker, uint32_t y, uint32_t between,
                     const std::vector<Length>& lengths = {}) {
  Graph& graph = maker.graph();
  std::vector<std::vector<float>> results;
  for (const bool stored : {false, true}) {
    graph.outputs = stored ? std::vector<uint32_t>{y, between} : std::vector<uint32_t>{y};
    validate(graph);
    Side gpu(cuda_backend(), maker, graph, 5, Placing::NearDevice);
    for (const Length& length : lengths) gpu.set_length(length.id, length.value);
    for (const uint32_t seed : {7u, 8u}) {
      gpu.refill(seed);
      gpu.run();
      results.push_back(gpu.output(0));
    }
  }
  CHECK(results[0] != results[1]);
  if (results[0] != results[2] || results[1] != results[3])
    report_failure(__FILE__, __LINE__, what + ": other results where what is between is stored");
}

// The first of these pairs of tiles fill all multiprocessors of an H200; the widths end within either tile of a pair.
void test_products_of_gates_left_quantised_are_those_that_are_stored() {
  for (const auto& [rows, inputs, width] : {std::array<int64_t, 3>{256, 512, 12288},
                                            {130, 512, 12224},
                                            {200, 1024, 12160},
                                            {256, 512, 12096},
                                            {70, 192, 448}}) {
    GraphMaker maker(DType::Float16, uint32_t(rows));
    const uint32_t x = maker.input({1, rows, inputs});
    const uint32_t inner = maker.silu_mul(maker.linear(x, 2 * width, WeightFormat::LinearW4, rows == 130));
    const uint32_t y = maker.linear(inner, 96, WeightFormat::LinearW4);
    check_same_bits(concat("gates ", rows, " x ", inputs, " -> ", width), maker, y, inner);
  }
}

void test_attention_left_quantised_is_that_which_is_stored() {
  for (const WeightFormat format : {WeightFormat::LinearW4, WeightFormat::LinearW8}) {
    for (const int64_t dim : {64, 128}) {
      for (const auto& [slots, tokens, filled] : {std::array<int64_t, 3>{1, 70, 0}, {1, 256, 40}, {2, 33, 3}}) {
        const int64_t heads = 6, kv_heads = 2, context = 320;
        GraphMaker maker(DType::Float16, uint32_t(tokens));
        const uint32_t q = maker.input({slots, tokens, heads, dim});
        const uint32_t k = maker.input({slots, tokens, kv_heads, dim}), v = maker.input({slots, tokens, kv_heads, dim});
        std::vector<uint32_t> k_operands, v_operands, attended;
        std::vector<Length> lengths;
        for (int64_t slot = 0; slot < slots; ++slot) {
          const uint32_t valid = maker.length(), current = maker.length();
          lengths.push_back({valid, int32_t(filled + slot)});
          lengths.push_back({current, int32_t(tokens - slot)});
          for (auto* operands : {&k_operands, &v_operands}) {
            operands->push_back(maker.cache({1, kv_heads, context, dim}));
            operands->push_back(valid);
            operands->push_back(current);
          }
        }
        const auto k_caches = maker.kv_cache(k, k_operands), v_caches = maker.kv_cache(v, v_operands);
        for (size_t slot = 0; slot < size_t(slots); ++slot) {
          for (const uint32_t id : {k_caches[slot], v_caches[slot], k_operands[3 * slot + 1], k_operands[3 * slot + 2]})
            attended.push_back(id);
        }
        const uint32_t between = maker.attention(q, attended);
        uint32_t y = maker.linear(between, slots == 1 ? heads * dim : 96, format);
        if (tokens == 70) y = maker.add(between, y);  // what is between is read twice
        check_same_bits(concat("attention ", name_of(format), " ", slots, " x ", tokens, " of ", dim), maker, y,
                        between, lengths);
      }
    }
  }
}

}  // namespace

int main() {
  if (!has_gpu()) return kSkipped;
  test_linear_of_every_format_and_number_of_rows();
  test_linear_of_many_rows_with_every_epilogue();
  test_linears_beyond_fp16_saturate();
  test_linear_of_fp32_tensors();
  test_linears_of_extreme_scales();
  test_linears_with_groups_of_zeros();
  test_weights_of_four_bits_are_rounded_by_half_a_step_at_most();
  test_linears_behind_long_norms();
  test_products_of_gates_left_quantised_are_those_that_are_stored();
  test_attention_left_quantised_is_that_which_is_stored();
  return check_result();
}
