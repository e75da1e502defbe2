// Plans of legal graphs: what is fused equals what is not, bit for bit; views, several consumers, batch slots with
// several tokens and live rows included. The unfused twin of a graph lists every intermediate as an output, which keeps
// the planner from absorbing any.
#include "graph/plan/plan.h"

#include <algorithm>
#include <cstring>

#include "check.h"
#include "graph_maker.h"
#include "plan_ports.h"
#include "transformer_layer.h"

using namespace tcim_lite;
using namespace tcim_lite::test;

namespace {

// Runs the graph and its unfused twin and compares outputs and caches, twice: caches and scratch are not fresh then.
void check_fusion(GraphMaker& maker, const std::vector<uint32_t>& outputs, const std::vector<Length>& lengths = {}) {
  Graph fused = maker.graph();
  fused.outputs = outputs;
  Graph unfused = fused;
  for (const Op& op : unfused.ops) {
    for (uint32_t id : op.outputs) {
      const bool listed = std::find(outputs.begin(), outputs.end(), id) != outputs.end();
      if (op.kind != OpKind::KVcache && !listed) unfused.outputs.push_back(id);
    }
  }
  const auto one = compile(maker, fused), other = compile(maker, unfused);
  Ports mine(fused, 9), theirs(unfused, 9);
  for (const Length& length : lengths) {
    mine.set_length(fused, length.id, length.value);
    theirs.set_length(unfused, length.id, length.value);
  }
  for (int round = 0; round < 2; ++round) {
    mine.run(*one);
    theirs.run(*other);
    for (size_t i = 0; i < outputs.size(); ++i) {
      CHECK_EQ(std::memcmp(mine.outputs[i]->data(), theirs.outputs[i]->data(), mine.outputs[i]->bytes()), 0);
    }
    for (size_t i = 0; i < mine.inputs.size(); ++i) {
      CHECK_EQ(std::memcmp(mine.inputs[i]->data(), theirs.inputs[i]->data(), mine.inputs[i]->bytes()), 0);
    }
  }
}

// Heads and attention are one step, in which a backend may write y while it still reads q, k and v.
void check_heads_and_attention_are_one_step(Graph graph, const std::vector<uint32_t>& outputs) {
  graph.outputs = outputs;
  const Plan plan = build_plan(graph, Numerics::AsCompiled);
  const auto range = [&](const Rows& rows) {
    const int64_t begin = plan.storage[rows.value].offset, last = (rows.rows - 1) * rows.stride + rows.cols;
    return std::pair(begin, begin + last * 2);
  };
  int found = 0;
  for (const StepSpec& step : plan.steps) {
    CHECK(!std::holds_alternative<HeadsSpec>(step) && !std::holds_alternative<AttentionSpec>(step));
    const auto* both = std::get_if<HeadsAttentionSpec>(&step);
    if (both == nullptr) continue;
    ++found;
    CHECK_EQ(both->of_q().y.value, both->attention.q.value);
    CHECK(both->of_q().caches.empty() && both->of_k().norm_id != kNoValue && both->of_v().norm_id == kNoValue);
    for (const HeadChainSpec& chain : both->heads.chains) {
      CHECK(plan.storage[chain.x.value].place == Plan::Place::Arena);
      const auto [begin, end] = range(chain.x);
      const auto [y_begin, y_end] = range(both->attention.y);
      CHECK(end <= y_begin || y_end <= begin);
    }
  }
  CHECK_EQ(found, 1);
}

// A transformer layer over `slots` slots of `tokens` tokens.
void check_layer(DType dtype, WeightFormat format, int64_t slots, int64_t tokens, bool live) {
  GraphMaker maker(dtype);
  std::vector<Length> lengths;
  const uint32_t x = add_layer(maker, format, {slots, tokens, 128, 4, 2, 64, 300, 192}, live, lengths);
  const std::vector<uint32_t> outputs = {maker.linear(maker.rms_norm(x), 50, format)};
  check_fusion(maker, outputs, lengths);
  if (dtype == DType::Float16) check_heads_and_attention_are_one_step(maker.graph(), outputs);
}

// q, k and v as a layer has them, but for what a case changes.
struct AttentionCase {
  bool q_is_read_twice = false, q_turns_elsewhere = false, v_has_a_norm = false, another_between = false,
       no_norms = false, other_caches = false, positions_are_given = false, tables_are_computed = false,
       tables_come_late = false;
};

std::vector<size_t> steps_of(const AttentionCase& wanted) {
  GraphMaker maker(DType::Float16);
  const uint32_t x = maker.input({1, 2, 256}), valid = maker.length(), current = maker.length();
  const uint32_t keys = maker.cache({1, 1, 40, 64}), values = maker.cache({1, 1, 40, 64});
  const uint32_t projected = maker.linear(x, 256, WeightFormat::LinearF16);
  const auto part = [&](int64_t first, int64_t count, bool norm) {
    const uint32_t heads = maker.reshape(maker.slice(projected, first * 64, (first + count) * 64), {1, 2, count, 64});
    return norm ? maker.rms_norm(heads) : heads;
  };
  const uint32_t turned = wanted.q_turns_elsewhere ? maker.length() : valid;
  const uint32_t given = maker.positions(2);
  const auto where = [&](uint32_t first) { return std::vector{wanted.positions_are_given ? given : first}; };
  uint32_t cos = maker.input({1, 2, 32}), sin = maker.input({1, 2, 32});
  const auto turn = [&](uint32_t heads, uint32_t first) {
    if (wanted.tables_come_late) cos = maker.add(cos, sin);
    const bool rows = wanted.tables_are_computed || wanted.tables_come_late;
    return rows ? maker.rope_by_rows(heads, cos, sin) : maker.rope(heads, 40, where(first));
  };
  const uint32_t q = turn(part(0, 2, !wanted.no_norms), turned);
  const uint32_t k = turn(part(2, 1, !wanted.no_norms), valid);
  const uint32_t k_cache = maker.kv_cache(k, {keys, valid, current})[0];
  const uint32_t v_cache = maker.kv_cache(part(3, 1, wanted.v_has_a_norm), {values, valid, current})[0];
  std::vector<uint32_t> outputs;
  if (wanted.q_is_read_twice) outputs.push_back(q);
  if (wanted.another_between) outputs.push_back(maker.add(x, x));
  const uint32_t other = wanted.other_caches ? v_cache : k_cache;
  outputs.push_back(maker.attention(q, {other, v_cache, valid, current}));
  maker.graph().outputs = outputs;
  validate(maker.graph());
  std::vector<size_t> kinds;
  for (const StepSpec& step : build_plan(maker.graph(), Numerics::AsCompiled).steps) kinds.push_back(step.index());
  return kinds;
}

TEST(heads_are_a_step_of_their_own_where_attention_is_not_all_that_follows) {
  const size_t both = StepSpec(HeadsAttentionSpec{}).index(), apart = StepSpec(AttentionSpec{}).index();
  const auto has = [](const std::vector<size_t>& kinds, size_t kind) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  for (const AttentionCase& fits : {AttentionCase{}, {.no_norms = true}, {.tables_are_computed = true}}) {
    CHECK(has(steps_of(fits), both));
    CHECK(!has(steps_of(fits), apart));
  }
  for (const AttentionCase& other : {AttentionCase{.q_is_read_twice = true},
                                     {.q_turns_elsewhere = true},
                                     {.v_has_a_norm = true},
                                     {.another_between = true},
                                     {.other_caches = true},
                                     {.positions_are_given = true},
                                     {.tables_come_late = true}}) {
    CHECK(!has(steps_of(other), both));
    CHECK(has(steps_of(other), apart));
  }
}

TEST(a_layer_is_the_same_fused_and_not) {
  for (const WeightFormat format : {WeightFormat::LinearW4, WeightFormat::LinearW8, WeightFormat::LinearF16}) {
    check_layer(DType::Float16, format, 1, 1, false);
    check_layer(DType::Float16, format, 1, 21, true);
    check_layer(DType::Float16, format, 3, 1, false);
    check_layer(DType::Float16, format, 2, 5, false);
  }
  check_layer(DType::Float32, WeightFormat::LinearF32, 1, 21, true);
  check_layer(DType::Float32, WeightFormat::LinearF32, 2, 5, false);
}

TEST(values_with_several_readers_are_stored) {
  GraphMaker maker(DType::Float16);
  const uint32_t x = maker.input({1, 3, 64});
  const uint32_t normed = maker.rms_norm(x);
  const uint32_t a = maker.linear(normed, 64, WeightFormat::LinearW8);
  const uint32_t b = maker.linear(normed, 64, WeightFormat::LinearW4);
  const uint32_t doubled = maker.add(a, a);
  const uint32_t sum = maker.add(maker.add(doubled, b), maker.linear(maker.rms_norm(b), 64, WeightFormat::LinearF16));
  check_fusion(maker, {sum});
}

TEST(a_product_is_a_step_of_its_own) {
  GraphMaker maker(DType::Float16);
  const uint32_t x = maker.input({2, 3, 64});
  const uint32_t gate = maker.linear(x, 64, WeightFormat::LinearF16);
  const uint32_t y =
      maker.elementwise(OpKind::Mul, maker.slice(maker.linear(x, 96, WeightFormat::LinearF16), 7, 71), gate);
  check_fusion(maker, {maker.add(maker.elementwise(OpKind::Mul, y, x), maker.linear(y, 64, WeightFormat::LinearW8))});
  Graph graph = maker.graph();
  graph.outputs = {y};
  int products = 0;
  for (const StepSpec& step : build_plan(graph, Numerics::AsCompiled).steps) {
    const auto* spec = std::get_if<ElementwiseSpec>(&step);
    products += spec != nullptr && spec->op == kMul;
  }
  CHECK_EQ(products, 2);
}

TEST(views_may_be_outputs) {
  GraphMaker maker(DType::Float16);
  const uint32_t x = maker.input({2, 3, 64});
  const uint32_t y = maker.linear(x, 96, WeightFormat::LinearF16);
  check_fusion(maker, {maker.slice(y, 16, 48), maker.reshape(x, {6, 64}), maker.reshape(y, {3, 2, 96}), y});
}

TEST(a_reshape_between_slots_and_tokens_keeps_the_caches_apart) {
  GraphMaker maker(DType::Float16);
  const uint32_t x = maker.input({1, 2, 64});
  std::vector<Length> lengths;
  std::vector<uint32_t> valid, operands, attended;
  for (int32_t slot = 0; slot < 2; ++slot) {
    const uint32_t cache = maker.cache({1, 1, 40, 64});
    lengths.push_back({maker.length(), 3 * slot});
    lengths.push_back({maker.length(), 1});
    valid.push_back(lengths[2 * slot].id);
    for (uint32_t id : {cache, lengths[2 * slot].id, lengths[2 * slot + 1].id}) operands.push_back(id);
  }
  const uint32_t heads = maker.reshape(maker.linear(x, 64, WeightFormat::LinearF16), {2, 1, 1, 64});
  const auto caches = maker.kv_cache(maker.rope(heads, 40, valid), operands);
  for (int slot = 0; slot < 2; ++slot) {
    for (uint32_t id : {caches[slot], caches[slot], operands[3 * slot + 1], operands[3 * slot + 2]}) {
      attended.push_back(id);
    }
  }
  check_fusion(maker, {maker.attention(heads, attended)}, lengths);
}

// Rows beyond the live count are zeros, whatever was there.
TEST(rows_that_are_not_live_are_zero_in_outputs) {
  GraphMaker maker(DType::Float16);
  const uint32_t x = maker.input({1, 4, 64});
  const uint32_t current = maker.length();
  maker.graph().live_rows = current;
  const uint32_t flat = maker.reshape(x, {4, 64});
  maker.graph().outputs = {maker.linear(x, 32, WeightFormat::LinearF16),
                           maker.linear(flat, 32, WeightFormat::LinearF16)};
  const auto executable = compile(maker, maker.graph());
  Ports ports(maker.graph(), 4);
  for (int32_t live : {4, 2}) {
    ports.set_length(maker.graph(), current, live);
    ports.run(*executable);
    for (const auto& output : ports.outputs) {
      bool zero = true, some = false;
      for (int64_t i = 0; i < 4 * 64; ++i) {
        const bool is_zero = output->data()[i] == std::byte{0};
        if (i >= live * 64) zero = zero && is_zero;
        if (i < live * 64) some = some || !is_zero;
      }
      CHECK(zero);
      CHECK(some);
    }
  }
}

}  // namespace

int main() { return run_tests(); }
