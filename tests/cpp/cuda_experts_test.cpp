// Mixtures of experts on a GPU against the CPU backend, and their decode as one launch of many phases and step by step.
// Needs a GPU; without one the program says so and exits with 77.
#include <cstdlib>
#include <iostream>
#include <vector>

#include "backends/backend.h"
#include "check.h"
#include "cuda_compare.h"
#include "graph_maker.h"

using namespace tcim_lite;
using namespace tcim_lite::test;

namespace {

constexpr WeightFormat kHalfFormats[] = {WeightFormat::LinearW4, WeightFormat::LinearW8, WeightFormat::LinearF16};

struct Mixture {
  WeightFormat format = WeightFormat::LinearW4;
  int64_t hidden = 256, inner = 192, experts = 40, chosen = 5;
  const char* order = "softmax_topk";
  bool normalise = true, bias = false, clamped = false;
  std::vector<float> router_bias = {};  // none: the router has none
};

std::string describe(const Mixture& m) {
  return concat(name_of(m.format), " ", m.chosen, " of ", m.experts, " experts, ", m.hidden, " and ", m.inner, ", ",
                m.order, m.normalise ? " normalised" : "", m.bias ? " bias" : "", m.clamped ? " clamped" : "");
}

// x + the mixture of its norm, as packages have it: the router's format is the head's.
uint32_t add_mixture(GraphMaker& maker, const Mixture& m, uint32_t x) {
  const uint32_t normed = maker.rms_norm(x);
  const WeightFormat head = m.format == WeightFormat::LinearW4 ? WeightFormat::LinearW8 : m.format;
  std::vector<uint32_t> operands = {normed, maker.packed(head, m.experts, m.hidden)};
  if (!m.router_bias.empty()) operands.push_back(maker.numbers(m.router_bias));
  Shape out = maker.shape(x);
  out.back() = m.experts;
  const uint32_t logits = maker.op(OpKind::Linear, operands, out);
  const auto [ids, shares] = maker.moe_route(logits, m.chosen, m.order, m.normalise);
  const uint32_t gate_up = maker.moe_linear(normed, ids, m.experts, 2 * m.inner, m.format, m.bias);
  const uint32_t inner = maker.silu_mul(gate_up, 1.702, m.clamped ? 7 : 0);
  return maker.add(x, maker.moe_combine(maker.moe_linear(inner, ids, m.experts, m.hidden, m.format, m.bias), shares));
}

// Alone: its experts follow from x, and the program begins with the router. Several runs: each chooses anew.
void test_a_mixture(const Mixture& m) {
  GraphMaker maker(DType::Float16, uint32_t(m.hidden + m.chosen));
  const uint32_t y = add_mixture(maker, m, maker.input({1, 1, m.hidden}));
  check(concat("mixture ", describe(m)), maker, {y, maker.linear(maker.rms_norm(y), 50, m.format)}, roundings(m.format),
        {}, 3);
}

void test_mixtures_of_every_kind() {
  for (const WeightFormat format : kHalfFormats) {
    for (const int64_t chosen : {1, 2, 3, 4, 5, 6, 8}) {
      test_a_mixture({.format = format, .chosen = chosen, .bias = chosen % 2 == 0});
      test_a_mixture({.format = format, .chosen = chosen, .order = "topk_softmax", .clamped = true});
    }
    test_a_mixture({.format = format, .normalise = false});
    test_a_mixture({.format = format, .hidden = 64, .inner = 64, .experts = 3, .chosen = 2, .bias = true});
    test_a_mixture({.format = format, .hidden = 2112, .inner = 768, .experts = 17, .chosen = 8});
    test_a_mixture({.format = format, .hidden = 192, .inner = 2880, .experts = 6, .chosen = 4, .bias = true});
    test_a_mixture({.format = format, .hidden = 128, .inner = 64, .experts = 256, .chosen = 8});
    test_a_mixture({.format = format, .hidden = 128, .inner = 1536, .experts = 9, .chosen = 7});
  }
}

// Logits that saturate are equal: the lower ids are chosen.
void test_equal_logits_go_to_the_lower_ids() {
  for (const WeightFormat format : kHalfFormats) {
    std::vector<float> bias(40, -1e6f);
    for (const size_t expert : {39, 11, 30, 3, 9}) bias[expert] = 1e6f;
    test_a_mixture({.format = format, .chosen = 3, .bias = true, .router_bias = bias});
    test_a_mixture({.format = format, .chosen = 8, .bias = true, .router_bias = bias});
  }
}

// Three layers and a head, each with experts that it favours whatever comes: an earlier rounding must not choose
// others.
void test_layers(const Mixture& like, int64_t dim, int64_t heads, int64_t kv_heads, int32_t filled,
                 int64_t window = 0) {
  constexpr int64_t kContext = 2048;
  GraphMaker maker(DType::Float16, uint32_t(filled));
  const Length valid{maker.length(), filled}, current{maker.length(), 1};
  uint32_t x = maker.input({1, 1, like.hidden});
  for (int64_t layer = 0; layer < 3; ++layer) {
    const uint32_t qkv = maker.linear(maker.rms_norm(x), (heads + 2 * kv_heads) * dim, like.format, true);
    const auto part = [&](int64_t first, int64_t count) {
      return maker.reshape(maker.slice(qkv, first * dim, (first + count) * dim), {1, 1, count, dim});
    };
    const uint32_t q = maker.rope(maker.rms_norm(part(0, heads)), kContext, {valid.id});
    const uint32_t k = maker.rope(maker.rms_norm(part(heads, kv_heads)), kContext, {valid.id});
    const auto cached = [&](uint32_t fresh) {
      return maker.kv_cache(fresh, {maker.cache({1, kv_heads, kContext, dim}), valid.id, current.id})[0];
    };
    const uint32_t keys = cached(k), values = cached(part(heads + kv_heads, kv_heads));
    const uint32_t attended = maker.attention(q, {keys, values, valid.id, current.id}, window);
    x = maker.add(x, maker.linear(attended, like.hidden, like.format));
    Mixture m = like;
    m.router_bias.assign(size_t(m.experts), 0.0f);
    for (int64_t rank = 0; rank < m.chosen; ++rank)
      m.router_bias[size_t((layer * 11 + rank * 3) % m.experts)] = 8 - 0.3f * float(rank);
    x = add_mixture(maker, m, x);
  }
  check(concat("layers of ", describe(like), ", dim ", dim, " heads ", heads, "/", kv_heads, " filled ", filled), maker,
        {maker.linear(maker.rms_norm(x), 50, like.format), x}, roundings(like.format), {valid, current}, 3, 1);
}

void test_layers_of_experts() {
  for (const WeightFormat format : kHalfFormats) {
    for (const int32_t filled : {0, 1, 100, 127, 128, 700, 1900}) {
      test_layers({.format = format, .chosen = 8}, 128, 8, 1, filled);
      test_layers({.format = format, .chosen = 4}, 128, 14, 2, filled);
    }
    test_layers({.format = format, .hidden = 1024, .chosen = 8}, 128, 32, 4, 40);
    test_layers({.format = format, .hidden = 512, .chosen = 2}, 128, 8, 2, 300);
    // Attention is a launch of its own between programs.
    for (const int64_t window : {0, 100})
      test_layers({.format = format, .chosen = 4, .bias = true, .clamped = true}, 64, 8, 1, 300, window);
  }
}

// As latent attention has them: a part of each head of a row, and heads of another size.
void test_heads_of_every_number_of_rows() {
  for (const WeightFormat format : {WeightFormat::LinearW4, WeightFormat::LinearW8, WeightFormat::LinearF16}) {
    for (const int64_t rows : {1, 3, 9, 70}) {
      for (const int64_t heads : {1, 6, 128}) {
        GraphMaker maker(DType::Float16, uint32_t(rows + heads));
        const uint32_t row = maker.input({1, rows, heads * 160});
        const uint32_t x = maker.reshape(maker.slice(row, 0, heads * 128), {1, rows, heads, 128});
        check(concat("heads ", name_of(format), " ", rows, " rows, ", heads, " heads"), maker,
              {maker.head_linear(x, 72, format)}, kSums);
      }
    }
  }
}

// Only experts of some groups: the largest logit of a group decides, which is the same number on both.
void test_groups_of_experts() {
  for (const int64_t rows : {1, 9, 300}) {
    for (const int64_t groups : {2, 5, 40}) {
      GraphMaker maker(DType::Float16, uint32_t(rows + groups));
      const uint32_t x = maker.input({1, rows, 192}), logits = maker.input({1, rows, 80});
      const auto [ids, shares] = maker.moe_route(logits, 2, "softmax_topk", rows == 9, groups, 1);
      const uint32_t wide = maker.moe_linear(x, ids, 80, 64, WeightFormat::LinearF16);
      check(concat("groups ", groups, ", ", rows, " rows"), maker, {shares, wide}, kSums);
    }
  }
}

// Tokens whose experts differ and whose are the same, few and many; ties of equal logits are frequent in fp16.
void test_experts_of_every_number_of_rows() {
  for (const WeightFormat format :
       {WeightFormat::LinearW4, WeightFormat::LinearW8, WeightFormat::LinearF16, WeightFormat::LinearMxfp4}) {
    for (const int64_t rows : {1, 3, 8, 9, 70, 300}) {
      for (const char* order : {"softmax_topk", "topk_softmax"}) {
        GraphMaker maker(DType::Float16, uint32_t(rows));
        const uint32_t x = maker.input({1, rows, 192}), logits = maker.input({1, rows, 40});
        const auto [ids, shares] = maker.moe_route(logits, 5, order, rows % 2 == 0);
        const uint32_t wide = maker.moe_linear(x, ids, 40, 336, format, true);
        const uint32_t inner = maker.silu_mul(maker.moe_linear(x, ids, 40, 256, format, rows % 2 == 0));
        const auto what = concat("experts ", name_of(format), " ", rows, " rows, ", order);
        check(what, maker, {shares, wide}, kSums);
        check(what, maker, {inner}, {0, 1e-3});
        const uint32_t down = maker.moe_linear(inner, ids, 40, 192, format);
        check(what, maker, {maker.add(x, maker.moe_combine(down, shares)), maker.moe_combine(wide, shares)},
              roundings(format));
      }
    }
  }
  for (const WeightFormat format : {WeightFormat::LinearF32, WeightFormat::LinearW4}) {
    GraphMaker maker(DType::Float32);
    const uint32_t x = maker.input({1, 20, 128});
    const auto [ids, shares] = maker.moe_route(maker.input({1, 20, 8}), 3, "softmax_topk", true);
    const uint32_t y = maker.moe_linear(x, ids, 8, 100, format, true);
    check(concat("experts fp32 ", name_of(format)), maker, {shares, maker.moe_combine(y, shares)}, kSums);
  }
}

}  // namespace

int main() {
  if (!has_gpu()) return kSkipped;
  test_heads_of_every_number_of_rows();
  test_groups_of_experts();
  test_experts_of_every_number_of_rows();
  for (const char* chain : {"off", "on"}) {  // one launch for each step, then one for all of a token's
    std::cout << "one launch: " << chain << "\n";
    setenv("TCIM_LITE_CUDA_ONE_LAUNCH", chain, 1);
    test_mixtures_of_every_kind();
    test_equal_logits_go_to_the_lower_ids();
    test_layers_of_experts();
  }
  return check_result();
}
