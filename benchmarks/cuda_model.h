// Qwen3's graph on a GPU for benchmarks, without packages: random weights, of which the layers have copies in turn.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backends/backend.h"
#include "graph_maker.h"

namespace tcim_lite::bench {

struct ModelShape {
  int64_t hidden, inner, layers, heads;
  int64_t kv_heads = 8;
  int64_t experts = 0, chosen = 1;  // with experts: `inner` of each
};
inline const std::map<std::string, ModelShape> kShapes = {{"0.6B", {1024, 3072, 28, 16}},
                                                          {"1.7B", {2048, 6144, 28, 16}},
                                                          {"4B", {2560, 9728, 36, 32}},
                                                          {"8B", {4096, 12288, 36, 32}},
                                                          {"30B-A3B", {2048, 768, 48, 32, 4, 128, 8}}};
inline const std::map<std::string, WeightFormat> kFormats = {
    {"w4", WeightFormat::LinearW4}, {"w8", WeightFormat::LinearW8}, {"f16", WeightFormat::LinearF16}};
constexpr int64_t kDim = 128, kVocabulary = 151936;
constexpr int64_t kRandomBytes = 200'000'000;  // of layers; each has its own on the GPU

enum class Logits { OfEveryToken, OfTheLast };

// `tokens` of each of `slots`; with logits of the last one, there is one slot.
struct Rows {
  int64_t slots, tokens, context;
  Logits logits;
};

class CudaModel {
 public:
  CudaModel(const ModelShape& shape, WeightFormat format, const Rows& rows)
      : shape_(shape),
        format_(format),
        slots_(rows.slots),
        tokens_(rows.tokens),
        context_(rows.context),
        maker_(DType::Float16) {
    uint32_t x = maker_.input({slots_, tokens_, shape.hidden});
    for (int64_t slot = 0; slot < slots_; ++slot) {
      valid_.push_back(maker_.length());
      current_.push_back(maker_.length());
    }
    const bool last_only = rows.logits == Logits::OfTheLast;
    if (last_only) maker_.graph().live_rows = current_[0];
    const WeightFormat head = format == WeightFormat::LinearW4 ? WeightFormat::LinearW8 : format;  // as in packages
    head_ = head;
    const auto layer_bytes = [&](int64_t experts) {
      const int64_t router = shape.experts == 0 ? 0 : packed_bytes(head, shape.experts, shape.hidden);
      return packed_bytes(format, layer_weights(experts) / 4096, 4096) + router;
    };
    distinct_ = std::min(shape.layers, kRandomBytes / layer_bytes(std::max<int64_t>(shape.experts, 1)) + 1);
    for (int64_t layer = 0; layer < shape.layers; ++layer) x = add_layer(x, layer);
    if (last_only) x = maker_.gather(x, current_[0]);
    const uint32_t logits = maker_.linear(maker_.rms_norm(x), kVocabulary, head);
    maker_.graph().outputs = {logits};
    validate(maker_.graph());
    weight_bytes_ = layer_bytes(shape.chosen) * shape.layers + packed_bytes(head, kVocabulary, shape.hidden);
    place(cuda_backend());
  }

  // Cache rows before the tokens, in every slot.
  void set_position(int64_t position) {
    const auto length = int32_t(position);
    for (size_t port = 0; port < memory_.inputs.size(); ++port) {
      if (std::count(valid_.begin(), valid_.end(), maker_.graph().inputs[port]) > 0)
        cuda_backend().copy_from_host(memory_.inputs[port], &length, 4);
    }
  }

  // The median of `repeats` runs.
  double seconds(int repeats) {
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      executable_->run({&memory_, 1});
      times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  // Of weights, of which a token chooses its experts', and of the cache rows that precede the tokens.
  int64_t bytes(int64_t position) const {
    return weight_bytes_ + 2 * shape_.layers * shape_.kv_heads * kDim * 2 * slots_ * position;
  }
  // Multiplications and additions of the Linears.
  int64_t operations() const {
    return 2 * slots_ * (tokens_ * layer_weights(shape_.chosen) * shape_.layers + kVocabulary * shape_.hidden);
  }

 private:
  // With so many experts.
  int64_t layer_weights(int64_t experts) const {
    return shape_.hidden * (shape_.heads * 2 + 2 * shape_.kv_heads) * kDim + 3 * shape_.hidden * shape_.inner * experts;
  }

  void place(Backend& backend) {
    const Graph& graph = maker_.graph();
    Part part{std::make_shared<const Graph>(graph), maker_.weights()};
    part.placed.resize(part.weights.size());
    for (const Value& value : graph.values) {
      if (value.kind != ValueKind::Weight || part.placed[value.weight] != nullptr) continue;
      part.placed[value.weight] =
          backend.place_weight(0, part.weights[value.weight], {value.format, value.dtype, value.shape});
    }
    std::vector<Part> parts;
    parts.push_back(std::move(part));
    executable_ = backend.compile(std::move(parts));
    for (uint32_t id : graph.inputs) {
      const Value& value = graph.values[id];
      const bool state = value.kind == ValueKind::State;
      owned_.push_back(backend.allocate(0, uint64_t(num_elements(value.shape) * size_of(value.dtype)),
                                        state ? Placing::NearDevice : Placing::NearHost));
      memory_.inputs.push_back(owned_.back()->data());
      const auto length = int32_t(tokens_);
      if (value.dtype == DType::Int32) backend.copy_from_host(owned_.back()->data(), &length, 4);
      if (value.kind != ValueKind::Input || value.dtype == DType::Int32) continue;
      std::vector<uint16_t> row(owned_.back()->bytes() / 2);
      for (size_t i = 0; i < row.size(); ++i) row[i] = float_to_half(float(int(i * 7919 % 201) - 100) / 100);
      backend.copy_from_host(owned_.back()->data(), row.data(), row.size() * 2);
    }
    for (uint32_t id : graph.outputs) {
      owned_.push_back(backend.allocate(0, uint64_t(num_elements(graph.values[id].shape) * 2), Placing::NearHost));
      memory_.outputs.push_back(owned_.back()->data());
    }
  }

  // The first layers have weights of their own, which the others repeat. With `ids` those of experts.
  uint32_t linear(uint32_t x, int64_t outputs, int64_t layer, WeightFormat format, uint32_t ids = kNoValue) {
    const bool experts = ids != kNoValue;
    if (layer >= distinct_) {
      const uint32_t like = weights_[repeated_++ % weights_.size()];
      return experts ? maker_.moe_linear_like(x, ids, like) : maker_.linear_like(x, like);
    }
    const uint32_t y =
        experts ? maker_.moe_linear(x, ids, shape_.experts, outputs, format) : maker_.linear(x, outputs, format);
    weights_.push_back(maker_.graph().ops.back().inputs[experts ? 2 : 1]);
    return y;
  }

  uint32_t add_layer(uint32_t x, int64_t layer) {
    const int64_t heads = shape_.heads, kv_heads = shape_.kv_heads;
    const uint32_t qkv = linear(maker_.rms_norm(x), (heads + 2 * kv_heads) * kDim, layer, format_);
    const auto part = [&](int64_t first, int64_t count) {
      return maker_.reshape(maker_.slice(qkv, first * kDim, (first + count) * kDim), {slots_, tokens_, count, kDim});
    };
    const uint32_t q = maker_.rope(maker_.rms_norm(part(0, heads)), context_, valid_);
    const uint32_t k = maker_.rope(maker_.rms_norm(part(heads, kv_heads)), context_, valid_);
    std::vector<uint32_t> k_operands, v_operands, attended;
    for (int64_t slot = 0; slot < slots_; ++slot) {
      for (auto* operands : {&k_operands, &v_operands}) {
        operands->push_back(maker_.cache({1, kv_heads, context_, kDim}));
        operands->push_back(valid_[size_t(slot)]);
        operands->push_back(current_[size_t(slot)]);
      }
    }
    const auto k_caches = maker_.kv_cache(k, k_operands);
    const auto v_caches = maker_.kv_cache(part(heads + kv_heads, kv_heads), v_operands);
    for (size_t slot = 0; slot < size_t(slots_); ++slot) {
      for (uint32_t id : {k_caches[slot], v_caches[slot], valid_[slot], current_[slot]}) attended.push_back(id);
    }
    x = maker_.add(x, linear(maker_.attention(q, attended), shape_.hidden, layer, format_));
    const uint32_t normed = maker_.rms_norm(x);
    uint32_t ids = kNoValue, shares = kNoValue;
    if (shape_.experts > 0) {
      const uint32_t logits = linear(normed, shape_.experts, layer, head_);
      std::tie(ids, shares) = maker_.moe_route(logits, shape_.chosen, "softmax_topk", true);
    }
    const uint32_t inner = maker_.silu_mul(linear(normed, 2 * shape_.inner, layer, format_, ids));
    const uint32_t y = linear(inner, shape_.hidden, layer, format_, ids);
    return maker_.add(x, ids == kNoValue ? y : maker_.moe_combine(y, shares));
  }

  const ModelShape shape_;
  const WeightFormat format_;
  const int64_t slots_, tokens_, context_;
  test::GraphMaker maker_;
  WeightFormat head_ = WeightFormat::Dense;  // of the router, too
  int64_t distinct_ = 0, weight_bytes_ = 0;
  size_t repeated_ = 0;  // Linears so far
  std::vector<uint32_t> valid_, current_, weights_;
  std::unique_ptr<Executable> executable_;
  std::vector<std::shared_ptr<DeviceMemory>> owned_;
  PartMemory memory_;
};

}  // namespace tcim_lite::bench
