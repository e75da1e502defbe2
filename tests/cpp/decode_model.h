// Decoders as graphs and their plans, for tests of the programs that a GPU decodes with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/decode/program.h"
#include "graph_maker.h"

namespace tcim_lite::cuda::decode {
namespace {

using test::GraphMaker;

constexpr int kMultiprocessors = 132;
std::byte* const kWhere = reinterpret_cast<std::byte*>(1 << 20);  // never read

// A decoder's layers and its head.
struct Decoder {
  WeightFormat format = WeightFormat::LinearW4;
  int64_t slots = 1, tokens = 1, heads = 16, kv_heads = 8, dim = 128, inner = 3072;
  bool norms = true;  // of q and k
  bool bias = false;  // of q, k and v
  int layers = 2;
  int64_t window = 0;   // of attention; 0: none
  int64_t experts = 0;  // of `inner` each, instead of one MLP
  int64_t chosen = 2;
  bool clamped = false;
  WeightFormat router = WeightFormat::LinearW8;
  const char* shown = "";  // what else is an output of each layer
};

class Model {
 public:
  explicit Model(const Decoder& s) : maker_(DType::Float16) {
    constexpr int64_t kHidden = 64;  // weights are made, whatever a case has to do with them
    uint32_t x = maker_.input({s.slots, s.tokens, kHidden});
    std::vector<uint32_t> valid, current;
    for (int64_t slot = 0; slot < s.slots; ++slot) {
      valid.push_back(maker_.length());
      current.push_back(maker_.length());
    }
    std::vector<uint32_t> shown;
    for (int layer = 0; layer < s.layers; ++layer) {
      x = add_attention(s, x, valid, current);
      if (s.experts > 0) {
        x = add_experts(s, x, shown);
        continue;
      }
      const uint32_t inner = maker_.linear(maker_.rms_norm(x), 2 * s.inner, s.format);
      x = maker_.add(maker_.linear(maker_.silu_mul(inner), kHidden, s.format), x);
    }
    shown.insert(shown.begin(), maker_.linear(maker_.rms_norm(x), 50, s.format));
    maker_.graph().outputs = shown;
    validate(maker_.graph());
    plan_ = build_plan(maker_.graph(), Numerics::AsCompiled);
  }

  const Plan& plan() const { return plan_; }
  std::optional<Program> program(size_t first = 0) const { return Program::plan(plan_, first, kMultiprocessors); }
  // Every value somewhere, 256 bytes apart or more.
  std::vector<std::byte*> addresses() const {
    std::vector<std::byte*> all;
    for (size_t id = 0; id < plan_.storage.size(); ++id) all.push_back(kWhere + 256 * id);
    return all;
  }

 private:
  uint32_t add_attention(const Decoder& s, uint32_t x, const std::vector<uint32_t>& valid,
                         const std::vector<uint32_t>& current) {
    const uint32_t qkv = maker_.linear(maker_.rms_norm(x), (s.heads + 2 * s.kv_heads) * s.dim, s.format, s.bias);
    const auto part = [&](int64_t first, int64_t count, bool norm) {
      const uint32_t heads =
          maker_.reshape(maker_.slice(qkv, first * s.dim, (first + count) * s.dim), {s.slots, s.tokens, count, s.dim});
      return norm ? maker_.rms_norm(heads) : heads;
    };
    const uint32_t q = maker_.rope(part(0, s.heads, s.norms), 256, valid);
    const uint32_t k = maker_.rope(part(s.heads, s.kv_heads, s.norms), 256, valid);
    const uint32_t v = part(s.heads + s.kv_heads, s.kv_heads, false);
    std::vector<uint32_t> k_operands, v_operands, attended;
    for (size_t slot = 0; slot < valid.size(); ++slot) {
      for (std::vector<uint32_t>* operands : {&k_operands, &v_operands}) {
        operands->push_back(maker_.cache({1, s.kv_heads, 256, s.dim}));
        operands->push_back(valid[slot]);
        operands->push_back(current[slot]);
      }
    }
    const auto keys = maker_.kv_cache(k, k_operands), values = maker_.kv_cache(v, v_operands);
    for (size_t slot = 0; slot < valid.size(); ++slot)
      for (uint32_t id : {keys[slot], values[slot], valid[slot], current[slot]}) attended.push_back(id);
    return maker_.add(x, maker_.linear(maker_.attention(q, attended, s.window), maker_.shape(x)[2], s.format));
  }

  uint32_t add_experts(const Decoder& s, uint32_t x, std::vector<uint32_t>& shown) {
    const std::string what = s.shown;
    const auto show = [&](const char* name, uint32_t id) {
      if (what == name) shown.push_back(id);
      return id;
    };
    const uint32_t normed = show("normed", maker_.rms_norm(x));
    const uint32_t logits = show("logits", maker_.linear(normed, s.experts, s.router, s.bias));
    const auto [ids, shares] = maker_.moe_route(logits, s.chosen, "softmax_topk", true);
    show("ids", ids);
    show("shares", shares);
    const uint32_t gate_up = maker_.moe_linear(normed, ids, s.experts, 2 * s.inner, s.format, s.bias);
    const uint32_t inner = show("inner", maker_.silu_mul(gate_up, 1.702, s.clamped ? 7 : 0));
    const uint32_t down = maker_.moe_linear(inner, ids, s.experts, maker_.shape(x)[2], s.format, s.bias);
    const uint32_t y = maker_.moe_combine(show("down", down), shares);
    return what == "other residual" ? maker_.add(y, normed) : maker_.add(x, y);
  }

  GraphMaker maker_;
  Plan plan_;
};

}  // namespace
}  // namespace tcim_lite::cuda::decode
