// What a plan has memory for, and which graphs and lengths are refused.
#include "backends/backend.h"
#include "base/error.h"
#include "check.h"
#include "graph/plan/plan.h"
#include "graph_maker.h"
#include "plan_ports.h"

using namespace tcim_lite;
using namespace tcim_lite::test;

namespace {

template <typename Call>
ErrorCode code_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::Internal;
}

TEST(lengths_that_cannot_be_are_refused) {
  GraphMaker maker(DType::Float16);
  const uint32_t wide = maker.input({1, 9, 64}), narrow = maker.input({1, 4, 64}), current = maker.length();
  maker.graph().live_rows = current;
  maker.graph().outputs = {maker.gather(wide, current), maker.gather(narrow, current)};
  const auto executable = compile(maker, maker.graph());
  Ports ports(maker.graph(), 4);
  for (int32_t length : {-5, 0, 5, 9, 10}) {
    ports.set_length(maker.graph(), current, length);
    CHECK(code_of([&] { ports.run(*executable); }) == ErrorCode::Argument);
  }
  ports.set_length(maker.graph(), current, 4);
  ports.run(*executable);
}

TEST(what_the_backend_cannot_do_is_refused_at_load) {
  {
    GraphMaker maker(DType::Float16);
    maker.graph().outputs = {maker.linear(maker.input({1, 2, 3, 64}), 16, WeightFormat::LinearF16)};
    CHECK(code_of([&] { compile(maker, maker.graph()); }) == ErrorCode::Unsupported);
  }
  {
    GraphMaker maker(DType::Float16);
    const uint32_t x = maker.input({1, 4, 64});
    maker.graph().live_rows = maker.length();
    maker.graph().outputs = {maker.linear(maker.reshape(x, {1, 256}), 16, WeightFormat::LinearF16)};
    CHECK(code_of([&] { compile(maker, maker.graph()); }) == ErrorCode::Unsupported);
  }
  {
    GraphMaker maker(DType::Float16);
    const uint32_t x = maker.input({1, 4, 1, 8}), cache = maker.cache({1, 1, 16, 8});
    const uint32_t rows = maker.reshape(maker.kv_cache(x, {cache, maker.length(), maker.length()})[0], {16, 8});
    maker.graph().outputs = {maker.add(rows, rows)};
    validate(maker.graph());
    build_plan(maker.graph(), Numerics::AsCompiled);
    CHECK(code_of([&] { build_plan(maker.graph(), Numerics::Float); }) == ErrorCode::Unsupported);
  }
}

// The arena has room for what a backend keeps in a form of its own; it is asked when all steps and ports are known.
TEST(values_in_a_form_of_a_backend_have_their_bytes) {
  GraphMaker maker(DType::Float16);
  const uint32_t x = maker.input({4, 16}), a = maker.add(x, x), b = maker.add(a, x), y = maker.add(a, b);
  maker.graph().outputs = {y};
  validate(maker.graph());
  const auto own_forms = [&](const Plan& plan) {
    CHECK_EQ(plan.steps.size(), size_t(3));
    CHECK(plan.storage[y].place == Plan::Place::Output);
    std::vector<OwnForm> forms(maker.graph().values.size());
    forms[a].bytes = 1000;
    return forms;
  };
  const Plan plan = build_plan(maker.graph(), Numerics::AsCompiled, Joins::None, own_forms);
  CHECK_EQ(plan.arena_bytes, 1024 + 128);
  CHECK_EQ(plan.storage[a].offset, 0);
  CHECK_EQ(plan.storage[b].offset, 1024);
}

TEST(a_value_takes_the_place_of_one_that_is_read_for_the_last_time) {
  GraphMaker maker(DType::Float16);
  const uint32_t x = maker.input({4, 16}), a = maker.add(x, x), b = maker.add(x, a), c = maker.add(x, b);
  const uint32_t later = maker.add(c, c), d = maker.add(later, c), large = maker.add(x, d), y = maker.add(large, d);
  maker.graph().outputs = {y};
  validate(maker.graph());
  const auto own_forms = [&](const Plan&) {
    std::vector<OwnForm> forms(maker.graph().values.size());
    forms[b].over = a;
    forms[c].over = b;
    forms[later].over = c;  // which d reads too
    forms[large] = {1000, d};
    forms[y].over = large;  // an output
    return forms;
  };
  const Plan plan = build_plan(maker.graph(), Numerics::AsCompiled, Joins::None, own_forms);
  CHECK_EQ(plan.storage[b].offset, plan.storage[a].offset);
  CHECK_EQ(plan.storage[c].offset, plan.storage[a].offset);
  CHECK_EQ(plan.last_use[a], plan.last_use[c]);
  CHECK(plan.storage[later].offset != plan.storage[c].offset);
  CHECK(plan.storage[large].offset != plan.storage[d].offset);
  CHECK(plan.storage[y].place == Plan::Place::Output);
}

}  // namespace

int main() { return run_tests(); }
