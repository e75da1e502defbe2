// Builds graphs for tests op by op, with random weights.
#pragma once

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "base/error.h"
#include "base/half.h"
#include "graph/graph.h"

namespace tcim_lite::test {

class GraphMaker {
 public:
  explicit GraphMaker(DType tensor_dtype, uint32_t seed = 1) : dtype_(tensor_dtype), random_(seed) {}

  uint32_t input(Shape shape) { return interface(ValueKind::Input, dtype_, std::move(shape)); }
  uint32_t length() { return interface(ValueKind::Input, DType::Int32, {1}); }
  uint32_t positions(int64_t tokens) { return interface(ValueKind::Input, DType::Int32, {1, tokens}); }
  uint32_t images(Shape shape) { return interface(ValueKind::Input, DType::UInt8, std::move(shape)); }
  uint32_t crops(int64_t batch) { return interface(ValueKind::Input, DType::Int32, {batch, 10}); }
  uint32_t cache(Shape shape) { return interface(ValueKind::State, dtype_, std::move(shape)); }

  uint32_t linear(uint32_t x, int64_t outputs, WeightFormat format, bool with_bias = false) {
    const int64_t inputs = shape(x).back();
    Shape out = shape(x);
    out.back() = outputs;
    std::vector<uint32_t> operands = {x, packed(format, outputs, inputs)};
    if (with_bias) operands.push_back(floats(DType::Float32, {outputs}));
    return op(OpKind::Linear, operands, out);
  }
  // Of the quantised weights that follow: from `scale` to three times that, and from 2^(exponent - 2) to 2^exponent.
  // With `zeros` every other group is as the compiler makes one of zeros.
  void set_scales(float scale, int exponent, bool zeros = false) {
    scale_ = scale, exponent_ = exponent, zeros_ = zeros;
  }
  // With weights of its own that hold the bytes of an earlier Linear's.
  uint32_t linear_like(uint32_t x, uint32_t weights) {
    const uint32_t id = same_bytes(weights);
    Shape out = shape(x);
    out.back() = shape(id)[0];
    return op(OpKind::Linear, {x, id}, out);
  }
  // As moe_linear(), like linear_like().
  uint32_t moe_linear_like(uint32_t x, uint32_t ids, uint32_t weights) {
    const uint32_t id = same_bytes(weights);
    Shape out = shape(ids);
    out.push_back(shape(id)[1]);
    return op(OpKind::MoELinear, {x, ids, id}, out);
  }
  uint32_t rms_norm(uint32_t x) {
    return op(OpKind::RMSNorm, {x, floats(DType::Float32, {shape(x).back()})}, shape(x), {{"epsilon", 1e-6}});
  }
  uint32_t add(uint32_t a, uint32_t b) { return elementwise(OpKind::Add, a, b); }
  uint32_t elementwise(OpKind kind, uint32_t a, uint32_t b) { return op(kind, {a, b}, shape(a)); }
  // With a limit: the clamped form.
  uint32_t silu_mul(uint32_t x, double alpha = 0, double limit = 0) {
    Shape out = shape(x);
    out.back() /= 2;
    if (limit == 0) return op(OpKind::SiluMul, {x}, out);
    return op(OpKind::SiluMul, {x}, out, {{"alpha", alpha}, {"limit", limit}});
  }
  // ids and shares.
  std::pair<uint32_t, uint32_t> moe_route(uint32_t logits, int64_t chosen, const std::string& order, bool normalise,
                                          int64_t groups = 1, int64_t kept = 1) {
    Shape out = shape(logits);
    out.back() = chosen;
    const uint32_t ids = value(ValueKind::Intermediate, DType::Int32, out);
    const uint32_t shares = value(ValueKind::Intermediate, dtype_, out);
    graph_.ops.push_back({OpKind::MoERoute,
                          {logits},
                          {ids, shares},
                          {{"k", chosen}, {"order", order}, {"normalise", int64_t{normalise}}}});
    if (groups > 1) {
      graph_.ops.back().attributes.emplace_back("groups", groups);
      graph_.ops.back().attributes.emplace_back("kept_groups", kept);
    }
    return {ids, shares};
  }
  uint32_t head_linear(uint32_t x, int64_t outputs, WeightFormat format) {
    const int64_t blocks = (outputs + kBlockOutputs - 1) / kBlockOutputs, heads = shape(x)[2], inputs = shape(x).back();
    const uint32_t weight = packed(format, heads * blocks * kBlockOutputs, inputs);
    graph_.values[weight].shape = {heads, outputs, inputs};
    return op(OpKind::HeadLinear, {x, weight}, {shape(x)[0], shape(x)[1], heads, outputs});
  }
  uint32_t moe_linear(uint32_t x, uint32_t ids, int64_t experts, int64_t outputs, WeightFormat format,
                      bool with_bias = false) {
    const int64_t blocks = (outputs + kBlockOutputs - 1) / kBlockOutputs, inputs = shape(x).back();
    const uint32_t weight = packed(format, experts * blocks * kBlockOutputs, inputs);
    graph_.values[weight].shape = {experts, outputs, inputs};
    std::vector<uint32_t> operands = {x, ids, weight};
    if (with_bias) operands.push_back(floats(DType::Float32, {experts, outputs}));
    Shape out = shape(ids);
    out.push_back(outputs);
    return op(OpKind::MoELinear, operands, out);
  }
  uint32_t moe_combine(uint32_t x, uint32_t shares) {
    const Shape& s = shape(x);
    return op(OpKind::MoECombine, {x, shares}, {s[0], s[1], s[3]});
  }
  uint32_t slice(uint32_t x, int64_t start, int64_t stop) {
    Shape out = shape(x);
    out.back() = stop - start;
    return op(OpKind::Slice, {x}, out, {{"start", start}, {"stop", stop}});
  }
  uint32_t all_gather(uint32_t x, int64_t offset, int64_t width) {
    Shape out = shape(x);
    out.back() = width;
    return op(OpKind::AllGather, {x}, out, {{"offset", offset}});
  }
  uint32_t reshape(uint32_t x, Shape out) { return op(OpKind::Reshape, {x}, std::move(out)); }
  // All of one shape share their tables, as in a model.
  uint32_t rope(uint32_t x, int64_t context, const std::vector<uint32_t>& valid) {
    const Shape table = {context, shape(x)[3] / 2};
    if (tables_.count(table) == 0) tables_[table] = {floats(dtype_, table), floats(dtype_, table)};
    const auto [cos, sin] = tables_[table];
    std::vector<uint32_t> operands = {x, cos, sin};
    operands.insert(operands.end(), valid.begin(), valid.end());
    if (shape(valid[0]).size() == 1) return op(OpKind::Rope, operands, shape(x));
    return op(OpKind::Rope, operands, shape(x), {{"positions", std::string("given")}});
  }
  // By rows of cos and sin [B, T, half of what turns].
  uint32_t rope_by_rows(uint32_t x, uint32_t cos, uint32_t sin) {
    const int64_t turned = 2 * shape(cos)[2];
    std::vector<std::pair<std::string, AttributeValue>> attributes = {{"tables", std::string("computed")}};
    if (turned < shape(x)[3]) attributes.emplace_back("rotary_dim", turned);
    return op(OpKind::Rope, {x, cos, sin}, shape(x), attributes);
  }
  // operands: per slot cache, valid, current.
  std::vector<uint32_t> kv_cache(uint32_t fresh, const std::vector<uint32_t>& operands) {
    Op made{OpKind::KVcache, {fresh}, {}, {}};
    made.inputs.insert(made.inputs.end(), operands.begin(), operands.end());
    for (size_t slot = 0; slot < operands.size() / 3; ++slot) {
      made.outputs.push_back(value(ValueKind::Intermediate, dtype_, shape(operands[3 * slot])));
    }
    graph_.ops.push_back(made);
    return made.outputs;
  }
  // operands: per slot k, v, valid, current. A window of 0: none.
  uint32_t attention(uint32_t q, const std::vector<uint32_t>& operands, int64_t window = 0) {
    std::vector<uint32_t> all = {q};
    all.insert(all.end(), operands.begin(), operands.end());
    const Shape& s = shape(q);
    const Shape y = {s[0], s[1], s[2] * s[3]};
    return window == 0 ? op(OpKind::FlashAttention, all, y) : op(OpKind::FlashAttention, all, y, {{"window", window}});
  }
  uint32_t gather(uint32_t x, uint32_t current) { return op(OpKind::BatchGather, {x, current}, {1, 1, shape(x)[2]}); }

  const Shape& shape(uint32_t id) const { return graph_.values[id].shape; }
  Graph& graph() { return graph_; }

  std::vector<WeightBytes> weights() const {
    std::vector<WeightBytes> views;
    for (const auto& weight : weights_) views.emplace_back(weight->data(), weight->bytes());
    return views;
  }

  // Any op with one result of the graph's dtype.
  uint32_t op(OpKind kind, std::vector<uint32_t> inputs, Shape out,
              std::vector<std::pair<std::string, AttributeValue>> attributes = {}) {
    const uint32_t id = value(ValueKind::Intermediate, dtype_, std::move(out));
    graph_.ops.push_back({kind, std::move(inputs), {id}, std::move(attributes)});
    return id;
  }
  // With a result of int32.
  uint32_t integers_op(OpKind kind, std::vector<uint32_t> inputs, Shape out,
                       std::vector<std::pair<std::string, AttributeValue>> attributes = {}) {
    const uint32_t id = value(ValueKind::Intermediate, DType::Int32, std::move(out));
    graph_.ops.push_back({kind, std::move(inputs), {id}, std::move(attributes)});
    return id;
  }
  uint32_t weight(Shape shape) { return floats(dtype_, std::move(shape)); }
  uint32_t integers(const std::vector<int32_t>& numbers, Shape shape) {
    const uint32_t id = value(ValueKind::Weight, DType::Int32, std::move(shape));
    std::memcpy(new_weight(id, int64_t(numbers.size() * sizeof(int32_t))), numbers.data(),
                numbers.size() * sizeof(int32_t));
    return id;
  }
  uint32_t numbers(const std::vector<float>& numbers) {
    const uint32_t id = value(ValueKind::Weight, DType::Float32, {int64_t(numbers.size())});
    const auto bytes = numbers.size() * sizeof(float);
    std::memcpy(new_weight(id, int64_t(bytes)), numbers.data(), bytes);
    return id;
  }
  // The values, and their places.
  std::pair<uint32_t, uint32_t> top_k(uint32_t x, int64_t chosen, bool largest) {
    Shape out = shape(x);
    out.back() = chosen;
    const uint32_t values = value(ValueKind::Intermediate, graph_.values[x].dtype, out);
    const uint32_t places = value(ValueKind::Intermediate, DType::Int32, out);
    graph_.ops.push_back({OpKind::TopK, {x}, {values, places}, {{"k", chosen}, {"largest", int64_t{largest}}}});
    return {values, places};
  }
  uint32_t floats(DType dtype, Shape shape) {
    const uint32_t id = value(ValueKind::Weight, dtype, shape);
    std::byte* data = new_weight(id, num_elements(shape) * size_of(dtype));
    for (int64_t i = 0; i < num_elements(shape); ++i) {
      const float number = uniform();
      const uint16_t half = float_to_half(number);
      std::memcpy(data + i * size_of(dtype), dtype == DType::Float16 ? static_cast<const void*>(&half) : &number,
                  size_t(size_of(dtype)));
    }
    return id;
  }
  uint32_t packed(WeightFormat format, int64_t outputs, int64_t inputs) {
    const DType dtype = format == WeightFormat::LinearF16   ? DType::Float16
                        : format == WeightFormat::LinearF32 ? DType::Float32
                                                            : DType::UInt8;
    const uint32_t id = value(ValueKind::Weight, dtype, {outputs, inputs});
    graph_.values[id].format = format;
    const int64_t blocks = (outputs + kBlockOutputs - 1) / kBlockOutputs;
    std::byte* data = new_weight(id, packed_bytes(format, outputs, inputs));
    for (int64_t block = 0; block < blocks; ++block, data += block_bytes(format, inputs)) {
      const int64_t bytes = block_bytes(format, inputs);
      if (!is_quantized(format)) {
        for (int64_t i = 0; i < bytes / size_of(dtype); ++i) {
          const float number = uniform() / 8;
          const uint16_t half = float_to_half(number);
          std::memcpy(data + i * size_of(dtype), dtype == DType::Float16 ? static_cast<const void*>(&half) : &number,
                      size_t(size_of(dtype)));
        }
        continue;
      }
      for (int64_t i = 0; i < bytes; ++i) data[i] = std::byte(random_());
      const WeightLayout layout = layout_of(format);
      for (int64_t i = 0; i < inputs / layout.scale_inputs * kBlockOutputs; ++i) {
        const uint16_t scale = float_to_half(scale_ + scale_ * (uniform() + 1));
        std::byte* scales = data + scales_offset(layout, inputs, i / kBlockOutputs);
        const int64_t n = i % kBlockOutputs;
        if (layout.scale_dtype == DType::Float16) std::memcpy(scales + 2 * n, &scale, 2);
        if (layout.scale_dtype == DType::Int8) scales[n] = std::byte(uint8_t(exponent_ - int(random_() % 3)));
      }
      for (int64_t group = 1; zeros_ && group < inputs / kGroup; group += 2) {
        const bool four_bits = layout.line_inputs == 8;
        std::memset(data + codes_offset(layout, group), four_bits ? 0x88 : 0x80, size_t(line_bytes(layout, kGroup)));
        const uint16_t one = float_to_half(1);
        std::byte* scales = data + scales_offset(layout, inputs, group);
        for (int64_t n = 0; n < kBlockOutputs; ++n) {
          if (four_bits) std::memcpy(scales + 2 * n, &one, 2);
          if (!four_bits) scales[n] = std::byte(uint8_t(-30));
        }
      }
    }
    return id;
  }

 private:
  uint32_t same_bytes(uint32_t weights) {
    const Value like = graph_.values[weights];
    const uint32_t id = value(ValueKind::Weight, like.dtype, like.shape);
    graph_.values[id].format = like.format;
    graph_.values[id].weight = uint32_t(weights_.size());
    weights_.push_back(weights_[like.weight]);
    return id;
  }
  uint32_t value(ValueKind kind, DType dtype, Shape shape) {
    Value made;
    made.name = concat("v", graph_.values.size());
    made.kind = kind;
    made.dtype = dtype;
    made.shape = std::move(shape);
    graph_.values.push_back(made);
    return uint32_t(graph_.values.size() - 1);
  }
  uint32_t interface(ValueKind kind, DType dtype, Shape shape) {
    const uint32_t id = value(kind, dtype, std::move(shape));
    graph_.inputs.push_back(id);
    return id;
  }
  std::byte* new_weight(uint32_t id, int64_t bytes) {
    graph_.values[id].weight = uint32_t(weights_.size());
    weights_.push_back(cpu_backend().allocate(0, uint64_t(bytes), Placing::NearDevice));
    return weights_.back()->data();
  }
  float uniform() { return std::uniform_real_distribution<float>(-1, 1)(random_); }

  const DType dtype_;
  std::mt19937 random_;
  float scale_ = 0.01f;  // of quantised weights
  int exponent_ = -10;
  bool zeros_ = false;
  Graph graph_;
  std::map<Shape, std::pair<uint32_t, uint32_t>> tables_;  // cos and sin
  std::vector<std::shared_ptr<DeviceMemory>> weights_;
};

}  // namespace tcim_lite::test
