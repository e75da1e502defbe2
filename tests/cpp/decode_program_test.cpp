// Which plans decode in one launch on a GPU, and what such a program holds (csrc/backends/cuda/decode/program.cpp). The
// launch itself needs a GPU: cuda_test.
#include <functional>
#include <vector>

#include "check.h"
#include "decode_model.h"

using namespace tcim_lite;
using namespace tcim_lite::cuda::decode;
using tcim_lite::test::GraphMaker;
using Kind = Phase::Kind;

namespace {

bool is_one_program(const Decoder& decoder) {
  const Model model(decoder);
  const auto program = model.program();
  return program && program->first_step() == 0 && program->end_step() == model.plan().steps.size();
}

TEST(decoders_are_one_program) {
  for (const WeightFormat format : {WeightFormat::LinearW4, WeightFormat::LinearW8, WeightFormat::LinearF16}) {
    for (const int64_t slots : {1, 2, 8}) {
      CHECK(is_one_program({.format = format, .slots = slots}));
      CHECK(is_one_program({.format = format, .slots = slots, .heads = 8, .kv_heads = 2, .norms = false}));
      CHECK(
          is_one_program({.format = format, .slots = slots, .heads = 3, .kv_heads = 1, .norms = false, .bias = true}));
    }
    CHECK(is_one_program({.format = format, .tokens = 5}));
  }
}

TEST(what_no_phase_does_is_no_program) {
  CHECK(!Model({.slots = 9}).program());
  CHECK(!Model({.format = WeightFormat::LinearF32}).program());
  CHECK(!is_one_program({.dim = 64}));
  CHECK(!is_one_program({.window = 100}));
  CHECK(is_one_program({.window = 256}));  // the context
  CHECK(!is_one_program({.heads = 16, .kv_heads = 2}));
  CHECK(!is_one_program({.slots = 8, .heads = 34, .kv_heads = 17}));  // more pairs than multiprocessors
}

TEST(a_layer_is_five_phases) {
  const auto program = Model({}).program();
  const ProgramArgs& args = program->args();
  CHECK_EQ(args.count, 11);
  for (int p = 0; p < args.count; ++p) {
    CHECK(args.phases[p].kind == (p % 5 == 1 && p < 10 ? Kind::Attention : Kind::Linear));
    CHECK_EQ(args.phases[p].mailed, p > 0);
  }
  CHECK_EQ(args.heads_per_kv, 2);
  CHECK_EQ(args.splits, kMultiprocessors / 8);
  CHECK_EQ(args.phases[1].attention.k_column, 16 * 128);
  CHECK(args.phases[10].keeps);
  CHECK_EQ(int(args.phases[7].linear.residual_from), 4);
}

TEST(a_long_row_of_several_is_quantised_once) {
  for (const WeightFormat format : {WeightFormat::LinearW4, WeightFormat::LinearF16}) {
    const bool apart = format == WeightFormat::LinearW4;
    const auto program = Model({.format = format, .slots = 2, .inner = kManyInputs, .layers = 1}).program();
    const ProgramArgs& args = program->args();
    CHECK_EQ(args.count, apart ? 7 : 6);
    CHECK((args.phases[4].kind == Kind::Quantize) == apart);
    CHECK_EQ(args.meetings, args.count);
  }
}

// With several rows, attention leaves codes to o, and what makes the input of a norm leaves sums of its squares.
TEST(a_phase_prepares_what_several_rows_of_the_next_read) {
  for (const WeightFormat format : {WeightFormat::LinearW4, WeightFormat::LinearF16}) {
    for (const int64_t slots : {1, 2}) {
      const Model model({.format = format, .slots = slots});
      auto program = model.program();
      CHECK(program->bind(model.addresses(), kWhere, nullptr, nullptr));
      const ProgramArgs& args = program->args();
      CHECK_EQ(args.count, 11);
      const auto squares = [&](int p) { return int(args.phases[p].linear.squares); };
      const bool several = slots > 1, codes = several && is_quantized(format);
      CHECK_EQ(squares(0), 0);               // nothing before it
      for (const int made : {2, 4, 7, 9}) {  // o and down
        CHECK_EQ(squares(made), several ? -1 : 0);
        CHECK_EQ(squares(made + 1), several ? args.phases[made].linear.tiles : 0);
      }
      CHECK_EQ(args.squares != nullptr, several);
      for (const int p : {1, 6}) {
        CHECK_EQ(args.phases[p].attention.codes != nullptr, codes);
        CHECK(args.phases[p].attention.codes == args.phases[p + 1].linear.codes);
      }
    }
  }
}

TEST(a_launch_finds_its_values_where_they_are_bound) {
  const Model model({.slots = 2, .inner = kManyInputs});
  auto program = model.program();
  auto addresses = model.addresses();
  std::byte* const scratch = kWhere + (1 << 24);
  const int* const refused = reinterpret_cast<const int*>(scratch + program->scratch_bytes());
  int* const odd = reinterpret_cast<int*>(scratch + program->scratch_bytes() + 8);
  CHECK(program->bind(addresses, scratch, refused, odd));
  const ProgramArgs& args = program->args();
  const auto& steps = model.plan().steps;
  const auto& first = std::get<LinearSpec>(steps[0]);
  const auto& attention = std::get<HeadsAttentionSpec>(steps[1]);
  CHECK(args.phases[0].linear.x == addresses[first.x.value]);
  CHECK(args.phases[0].linear.weights == addresses[first.weights_id]);
  CHECK(args.phases[0].linear.bias == nullptr && args.phases[0].linear.residual == nullptr);
  CHECK(args.phases[1].attention.k == addresses[attention.of_k().x.value]);
  CHECK(args.caches[3] == addresses[attention.attention.v[1]]);
  CHECK(args.cos == addresses[attention.of_q().cos_id]);
  CHECK(args.phases[4].quantize.codes == args.phases[5].linear.codes);
  CHECK(args.refused == refused && args.odd == odd);
  // Memory of its own, each piece apart from the others.
  const auto own = [&](const void* pointer) { return static_cast<const std::byte*>(pointer) - scratch; };
  const int64_t barrier = own(args.barrier), arrived = own(args.arrived), partial = own(args.partial);
  const int64_t codes = own(args.phases[4].quantize.codes), end = int64_t(program->scratch_bytes());
  CHECK(codes >= 0 && codes + kMostCodesBytes <= barrier && barrier + 8 <= arrived && arrived + 2 * 8 * 4 <= partial);
  CHECK(partial + kMultiprocessors * 2 * (kHeadDim + 2) * 4 <= end);

  addresses[attention.attention.k[0]] += 8;
  CHECK(!program->bind(addresses, scratch, refused, odd));
}

TEST(ops_that_no_linear_takes_along_are_phases) {
  for (const int64_t rows : {1, 3}) {
    GraphMaker maker(DType::Float16);
    const uint32_t x = maker.input({1, rows, 64});
    const uint32_t a = maker.linear(x, 64, WeightFormat::LinearW8), b = maker.linear(a, 64, WeightFormat::LinearW8);
    const uint32_t sum = maker.elementwise(OpKind::Mul, maker.add(a, b), b),
                   inner = maker.linear(sum, 128, WeightFormat::LinearW8);
    maker.graph().outputs = {maker.linear(maker.silu_mul(inner), 64, WeightFormat::LinearW8), inner};
    const Plan plan = build_plan(maker.graph(), Numerics::AsCompiled);
    auto program = Program::plan(plan, 0, kMultiprocessors);
    CHECK(program && program->end_step() == plan.steps.size());
    const ProgramArgs& args = program->args();
    std::vector<int> found;
    for (int p = 0; p < args.count; ++p) {
      if (args.phases[p].kind != Kind::Elementwise) continue;
      found.push_back(p);
      CHECK(args.phases[p].meets && args.phases[p + 1].meets && args.phases[p].keeps && args.phases[p - 1].keeps);
    }
    CHECK((found == std::vector<int>{2, 3, 5}));
    CHECK_EQ(args.phases[1].mailed, rows == 1);
    CHECK(args.phases[2].elementwise.op == kAdd && args.phases[3].elementwise.op == kMul);
    const ElementwisePhase& last = args.phases[5].elementwise;
    CHECK(last.op == kElementwiseOps && last.a_stride == 128 && last.cols == 64 && last.b == nullptr);
  }
}

constexpr Decoder kExperts = {.heads = 16, .kv_heads = 2, .inner = 64, .experts = 8};
Decoder with(const std::function<void(Decoder&)>& change) {
  Decoder decoder = kExperts;
  change(decoder);
  return decoder;
}

// A router in the head's format, the route, gate and up, down with the sum; eight heads a KV head.
TEST(a_layer_of_experts_is_seven_phases) {
  const Model model(kExperts);
  const auto program = model.program();
  CHECK(program && program->end_step() == model.plan().steps.size());
  const ProgramArgs& args = program->args();
  CHECK_EQ(args.count, 15);
  CHECK(args.experts);
  constexpr Kind kKinds[] = {Kind::Linear, Kind::Attention, Kind::Linear, Kind::Router,
                             Kind::Route,  Kind::Linear,    Kind::Linear};
  for (int p = 0; p < args.count; ++p) {
    const Phase& phase = args.phases[p];
    CHECK(phase.kind == kKinds[p % 7]);
    // A route and a sum meet; the rest goes by mail, but for gate and up, which meet with the route.
    CHECK_EQ(phase.meets, p % 7 == 4 || p % 7 == 6);
    CHECK_EQ(phase.mailed, p > 0 && p % 7 <= 3);
  }
  CHECK_EQ(args.meetings, 5);
  const LinearPhase &product = args.phases[5].linear, &sum = args.phases[6].linear;
  CHECK(product.chosen == 2 && !product.combines && product.outputs == 2 * 2 * 64 && product.tiles == 8);
  CHECK(sum.chosen == 2 && sum.combines && sum.inputs == 64 && sum.outputs == 64);
  CHECK(args.phases[2].keeps && args.phases[2].posts);  // o: the router has its mail, gate and up read it in memory
  CHECK(args.phases[3].keeps && args.phases[5].keeps && args.phases[6].posts);
  CHECK_EQ(int(args.phases[9].linear.residual_from), 6);
  CHECK(args.phases[4].route.experts == 8 && args.phases[4].route.softmax_first && args.phases[4].route.normalise);
}

TEST(experts_of_every_kind_are_one_program) {
  CHECK(is_one_program(kExperts));
  CHECK(is_one_program(with([](Decoder& d) { d.bias = d.clamped = true; })));
  CHECK(is_one_program(with([](Decoder& d) { d.format = WeightFormat::LinearW8; })));
  CHECK(is_one_program(with([](Decoder& d) { d.format = d.router = WeightFormat::LinearF16; })));
  CHECK(is_one_program(with([](Decoder& d) { d.experts = kMostExperts, d.chosen = kMostChosen; })));
  CHECK(is_one_program(with([](Decoder& d) { d.chosen = 3; })));
  CHECK(is_one_program(with([](Decoder& d) { d.experts = 5, d.chosen = 4, d.inner = 2880; })));
}

TEST(experts_that_no_phase_takes_end_a_program) {
  const auto ends = [](const std::function<void(Decoder&)>& change) {
    const Model model(with(change));
    const auto program = model.program();
    return program && std::holds_alternative<RmsNormSpec>(model.plan().steps[program->end_step()]);
  };
  CHECK(ends([](Decoder& d) { d.experts = kMostExperts + 1; }));
  CHECK(ends([](Decoder& d) { d.experts = 20, d.chosen = kMostChosen + 1; }));
  CHECK(ends([](Decoder& d) { d.router = WeightFormat::LinearF16; }));
  CHECK(ends([](Decoder& d) { d.format = d.router = WeightFormat::LinearF16, d.inner = 80; }));
  CHECK(ends([](Decoder& d) { d.chosen = 5, d.inner = 64 * 25; }));  // more than a warp has room for
  CHECK(ends([](Decoder& d) { d.slots = 2, d.kv_heads = 4; }));
  // Others read what phases would not leave in memory.
  for (const char* shown : {"normed", "logits", "ids", "shares", "inner", "down", "other residual"})
    CHECK(ends([&](Decoder& d) { d.shown = shown; }));
}

TEST(experts_between_launches_of_attention_are_no_program) {
  CHECK(!Model(with([](Decoder& d) { d.dim = 64; })).program());
  CHECK(!Model(with([](Decoder& d) { d.window = 100; })).program());
}

TEST(experts_use_memory_of_the_program) {
  const Model model(with([](Decoder& d) { d.bias = true; }));
  auto program = model.program();
  const auto addresses = model.addresses();
  std::byte* const scratch = kWhere + (1 << 24);
  CHECK(program->bind(addresses, scratch, nullptr, nullptr));
  const ProgramArgs& args = program->args();
  const auto& norm = std::get<RmsNormSpec>(model.plan().steps[3]);
  const auto& down = std::get<MoELinearSpec>(model.plan().steps[7]);
  const LinearPhase &scores = args.phases[3].linear, &product = args.phases[5].linear, &sum = args.phases[6].linear;
  CHECK(scores.x == addresses[norm.x.value] && product.x == scores.x && sum.residual == scores.x);
  CHECK(scores.norm_weight == product.norm_weight && product.norm_weight != nullptr && sum.norm_weight == nullptr);
  CHECK(args.phases[4].route.logits == scores.y && sum.x == product.y);
  CHECK(args.phases[10].linear.y == scores.y && args.phases[12].linear.y == product.y);
  CHECK(sum.weights == addresses[down.linear.weights_id]);
  CHECK(static_cast<const void*>(sum.bias) == addresses[down.linear.bias_id]);
  const auto own = [&](const void* pointer) { return static_cast<const std::byte*>(pointer) - scratch; };
  CHECK(own(scores.y) >= 0 && own(scores.y) + kMostExperts * 2 <= own(product.y));
  CHECK(own(product.y) + kMostCombined * 2 <= int64_t(program->scratch_bytes()));
}

TEST(too_few_phases_are_no_program) {
  GraphMaker maker(DType::Float16);
  uint32_t x = maker.input({1, 1, 64});
  for (int i = 0; i < 2; ++i) x = maker.linear(x, 64, WeightFormat::LinearF16);
  maker.graph().outputs = {x};
  CHECK(!Program::plan(build_plan(maker.graph(), Numerics::AsCompiled), 0, kMultiprocessors));
}

TEST(hidden_exponents_are_no_phase) {
  GraphMaker maker(DType::Float16);
  uint32_t x = maker.input({1, 1, 64});
  for (int i = 0; i < 5; ++i) x = maker.linear(x, 64, WeightFormat::LinearW8);
  maker.graph().outputs = {x};
  CHECK(Program::plan(build_plan(maker.graph(), Numerics::AsCompiled), 0, kMultiprocessors));
  maker.graph().ops[3].attributes.emplace_back("activations", "hidden_exponent");
  const auto program = Program::plan(build_plan(maker.graph(), Numerics::AsCompiled), 0, kMultiprocessors);
  CHECK(program && program->end_step() == 3);
}

TEST(a_program_ends_where_a_step_does_not_fit) {
  GraphMaker maker(DType::Float16);
  uint32_t x = maker.input({1, 1, 64});
  for (int i = 0; i < 3; ++i) x = maker.linear(x, 64, WeightFormat::LinearW8);
  for (int i = 0; i < 300; ++i) x = maker.linear(x, 64, WeightFormat::LinearF16);
  maker.graph().outputs = {x};
  const Plan plan = build_plan(maker.graph(), Numerics::AsCompiled);
  const auto first = Program::plan(plan, 0, kMultiprocessors);
  CHECK(first && first->format() == WeightFormat::LinearW8 && first->end_step() == 3);
  const auto second = Program::plan(plan, 3, kMultiprocessors);
  CHECK(second && second->end_step() - 3 <= size_t(kMostPhases) && second->end_step() - 3 > 200);
}

}  // namespace

int main() { return run_tests(); }
