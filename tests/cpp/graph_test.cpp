// Op list, attributes, the memory planner. What validate() refuses: shape_rules_test.cpp.
#include "graph/graph.h"

#include <random>

#include "check.h"
#include "graph/memory_plan.h"

using namespace tcim_lite;

namespace {

TEST(ops_are_found_by_name) {
  CHECK(find_op("Linear") == OpKind::Linear);
  CHECK(find_op("Reshape") == OpKind::Reshape);
  CHECK(!find_op("linear"));
  CHECK_EQ(name_of(OpKind::KVcache), "KVcache");
  CHECK_EQ(version_of(OpKind::Rope), 3);
}

TEST(attributes) {
  const Op op{OpKind::Slice, {}, {}, {{"start", int64_t{3}}, {"scale", 0.5}, {"text", std::string("x")}}};
  CHECK_EQ(op.attribute("start", int64_t{0}), 3);
  CHECK_EQ(op.attribute("start", 0.0), 3.0);
  CHECK_EQ(op.attribute("scale", 1.0), 0.5);
  CHECK_EQ(op.attribute("missing", 7.0), 7.0);
  CHECK_ERROR(op.attribute("scale", int64_t{0}), "not a whole number");
  CHECK_ERROR(op.attribute("text", 0.0), "not a number");
}

void check_plan(const std::vector<Lifetime>& lifetimes, const MemoryPlan& plan) {
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    CHECK_EQ(plan.offsets[i] % 64, 0u);
    CHECK(plan.offsets[i] + lifetimes[i].bytes <= plan.total_bytes);
    for (size_t k = 0; k < i; ++k) {
      const bool together =
          lifetimes[i].first_step <= lifetimes[k].last_step && lifetimes[k].first_step <= lifetimes[i].last_step;
      const bool apart = plan.offsets[i] + lifetimes[i].bytes <= plan.offsets[k] ||
                         plan.offsets[k] + lifetimes[k].bytes <= plan.offsets[i];
      CHECK(!together || apart || lifetimes[i].bytes == 0 || lifetimes[k].bytes == 0);
    }
  }
}

TEST(memory_plan_reuses_a_chain) {
  std::vector<Lifetime> chain;
  for (uint32_t step = 0; step < 100; ++step) chain.push_back({step, step + 1, 1000});
  const MemoryPlan plan = plan_memory(chain);
  check_plan(chain, plan);
  CHECK_EQ(plan.total_bytes, 2048u);
}

TEST(memory_plan_fills_the_tightest_gap) {
  // Placed end to end, largest first; the first and the third are freed and leave gaps of 1,024 and 960 bytes.
  const std::vector<Lifetime> lifetimes = {{0, 3, 1024}, {0, 9, 1000}, {0, 3, 960}, {0, 9, 900}, {5, 9, 100}};
  const MemoryPlan plan = plan_memory(lifetimes);
  check_plan(lifetimes, plan);
  CHECK_EQ(plan.offsets[4], 2048u);
}

TEST(memory_plan_is_sound) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<Lifetime> lifetimes;
    for (int i = 0; i < 60; ++i) {
      const uint32_t first = random() % 40;
      lifetimes.push_back({first, first + uint32_t(random() % 10), random() % 3000});
    }
    check_plan(lifetimes, plan_memory(lifetimes));
  }
  CHECK_EQ(plan_memory({}).total_bytes, 0u);
}

}  // namespace

int main() { return run_tests(); }
