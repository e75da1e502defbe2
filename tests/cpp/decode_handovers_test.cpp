// How the phases of a decode on a GPU get what earlier ones made (csrc/backends/cuda/decode/handovers.cpp). The launch
// itself needs a GPU: cuda_test.
#include <memory>
#include <vector>

#include "backends/cuda/decode/handovers.h"
#include "check.h"

using namespace tcim_lite;
using namespace tcim_lite::cuda::decode;

namespace {

constexpr int kHidden = 1024, kInner = 3072, kHeads = 16, kKvHeads = 8;
constexpr int kAttended = kHeads * kHeadDim, kProjected = (kHeads + 2 * kKvHeads) * kHeadDim;

// Phases over a row of fp16 in one arena; places are in values from its begin.
class Phases {
 public:
  explicit Phases(int rows = 1) : args_(std::make_unique<ProgramArgs>()) { args_->rows = rows; }

  Phase& phase(int p) { return args_->phases[p]; }
  Flow& flow(int p) { return flows_[size_t(p)]; }

  // residual: none if negative.
  void linear(int x, int inputs, int y, int outputs, int residual = -1) {
    next(Phase::Kind::Linear).linear = {};
    flows_.push_back({{at(x, inputs)}, residual < 0 ? Range{} : at(residual, outputs), at(y, outputs)});
  }
  void attention(int q, int y) {
    constexpr int kKv = kKvHeads * kHeadDim;
    next(Phase::Kind::Attention).attention = {};
    flows_.push_back({{at(q, kAttended), at(q + kAttended, kKv), at(q + kAttended + kKv, kKv)}, {}, at(y, kAttended)});
  }
  // As a plan has it: what is dead gives its place to what comes.
  void layer(int x, int y) {
    linear(x, kHidden, 0, kProjected);
    attention(0, 8192);
    linear(8192, kAttended, 16384, kHidden, x);
    linear(16384, kHidden, 0, kInner);
    linear(0, kInner, y, kHidden, 16384);
  }

  void two_layers_and_head() {
    layer(20000, 24000);
    layer(24000, 28000);
    linear(28000, kHidden, 40000, 9000);
  }

  const ProgramArgs& plan() {
    plan_handovers(*args_, flows_);
    return *args_;
  }

  static Range at(int place, int values) { return {1, 2 * place, values}; }

 private:
  Phase& next(Phase::Kind kind) {
    Phase& phase = args_->phases[args_->count++];
    phase.kind = kind;
    return phase;
  }

  const std::unique_ptr<ProgramArgs> args_;
  std::vector<Flow> flows_;
};

TEST(a_row_goes_through_layers_by_mail) {
  Phases phases;
  phases.two_layers_and_head();
  const ProgramArgs& args = phases.plan();
  CHECK_EQ(args.meetings, 1);
  for (int p = 0; p < args.count; ++p) {
    CHECK(!args.phases[p].meets);
    CHECK_EQ(args.phases[p].mailed, p > 0);
    CHECK_EQ(args.phases[p].posts, p + 1 < args.count);
  }
  CHECK_EQ(args.phases[6].attention.k_column, kAttended);
  CHECK_EQ(args.phases[6].attention.v_column, kAttended + kKvHeads * kHeadDim);
}

TEST(residuals_come_by_mail_where_an_earlier_phase_made_them) {
  Phases phases;
  phases.two_layers_and_head();
  const ProgramArgs& args = phases.plan();
  for (const auto& [phase, maker] : {std::pair{2, -1}, {4, 2}, {7, 4}, {9, 7}})
    CHECK_EQ(int(args.phases[phase].linear.residual_from), maker);
}

TEST(only_what_no_later_phase_writes_over_is_stored) {
  Phases phases;
  phases.two_layers_and_head();
  const ProgramArgs& args = phases.plan();
  std::vector<int> kept;
  for (int p = 0; p < args.count; ++p) {
    if (args.phases[p].keeps) kept.push_back(p);
  }
  CHECK((kept == std::vector<int>{4, 6, 7, 8, 9, 10}));
}

TEST(a_part_of_the_phase_before_is_read_past_a_barrier) {
  Phases phases;
  phases.linear(0, kHidden, 4000, kHidden);
  phases.linear(4000 + kHidden / 2, kHidden / 2, 8000, kHidden);
  phases.linear(8000, kHidden, 4000, kHidden);
  const ProgramArgs& args = phases.plan();
  CHECK_EQ(args.meetings, 2);
  CHECK(args.phases[1].meets && !args.phases[1].mailed);
  CHECK(args.phases[0].keeps && !args.phases[0].posts);
  CHECK(args.phases[2].mailed && !args.phases[2].meets);
}

TEST(what_is_read_a_second_time_is_read_past_a_barrier) {
  Phases phases;
  for (const int y : {4000, 8000, 12000}) phases.linear(y == 4000 ? 0 : 4000, kHidden, y, kHidden);
  const ProgramArgs& args = phases.plan();
  CHECK(args.phases[1].mailed && args.phases[0].posts);
  CHECK(args.phases[2].meets && args.phases[0].keeps);
}

TEST(a_residual_from_far_back_is_read_past_a_barrier) {
  for (const int between : {kMailBoxes - 2, kMailBoxes - 1}) {
    Phases phases;
    for (int i = 0; i <= between; ++i) phases.linear(2000 * i, kHidden, 2000 * (i + 1), kHidden);
    phases.linear(2000 * (between + 1), kHidden, 30000, kHidden, 2000);
    const ProgramArgs& args = phases.plan();
    const Phase& last = args.phases[args.count - 1];
    const bool far = between == kMailBoxes - 1;
    CHECK_EQ(last.meets, far);
    CHECK_EQ(int(last.linear.residual_from), far ? -1 : 0);
    CHECK(last.mailed);
    CHECK(!far || args.phases[0].keeps);
  }
}

TEST(attention_that_leaves_a_part_unread_takes_no_mail) {
  for (const bool within : {false, true}) {
    Phases phases;
    phases.linear(20000, kHidden, 0, kProjected + 64);
    phases.attention(0, 8192);
    if (within) phases.flow(1).reads[2].begin += 2 * 64;
    CHECK(phases.plan().phases[1].meets);
  }
}

TEST(attention_that_reads_a_part_twice_takes_no_mail) {
  Phases phases;
  phases.linear(20000, kHidden, 0, kProjected);
  phases.attention(0, 8192);
  phases.flow(1).reads[1] = phases.flow(1).reads[2];
  CHECK(phases.plan().phases[1].meets);
}

// Its blocks may be done before all of the phase before is.
TEST(attention_takes_no_mail_where_it_writes_over_what_the_phase_before_reads) {
  for (const bool residual : {false, true}) {
    Phases phases;
    phases.linear(residual ? 40000 : 8192, kHidden, 0, kProjected, residual ? 8192 : -1);
    phases.attention(0, 8192);
    CHECK(phases.plan().phases[1].meets);
  }
}

TEST(attention_takes_no_mail_into_a_box_that_the_phase_before_reads) {
  for (const int between : {kMailBoxes - 3, kMailBoxes - 2}) {
    Phases phases;
    phases.linear(60000, kHidden, 30000, kProjected);
    int x = 30000, inputs = kProjected;
    for (int i = 0; i < between; ++i) {
      phases.linear(x, inputs, 36000 + 2000 * i, kHidden);
      x = 36000 + 2000 * i;
      inputs = kHidden;
    }
    phases.linear(x, inputs, 0, kProjected, 30000);
    phases.attention(0, 8192);
    const ProgramArgs& args = phases.plan();
    CHECK_EQ(int(args.phases[args.count - 2].linear.residual_from), 0);
    CHECK_EQ(args.phases[args.count - 1].meets, between == kMailBoxes - 2);
  }
}

TEST(an_output_is_stored_though_another_overlaps_it) {
  Phases phases;
  phases.linear(0, kHidden, 4000, kHidden);
  phases.phase(0).keeps = true;
  phases.linear(4000, kHidden, 4500, kHidden);
  const ProgramArgs& args = phases.plan();
  CHECK(args.phases[0].keeps && args.phases[1].keeps && args.phases[1].mailed);
}

TEST(a_phase_without_mail_meets_its_neighbours) {
  Phases phases;
  for (int i = 0; i < 4; ++i) phases.linear(2000 * i, kHidden, 2000 * (i + 1), kHidden);
  phases.flow(1).takes = phases.flow(1).posts = false;
  const ProgramArgs& args = phases.plan();
  CHECK(args.phases[1].meets && args.phases[0].keeps && !args.phases[0].posts);
  CHECK(args.phases[2].meets && args.phases[1].keeps && !args.phases[1].posts);
  CHECK(args.phases[3].mailed);
}

TEST(memory_of_another_space_is_other_memory) {
  Phases phases;
  phases.linear(0, kHidden, 4000, kHidden);
  phases.linear(4000, kHidden, 8000, kHidden);
  phases.flow(0).made.space = 7;
  const ProgramArgs& args = phases.plan();
  CHECK(args.phases[1].meets && !args.phases[0].posts);
  CHECK(args.phases[0].keeps && args.phases[1].keeps);
}

TEST(several_rows_meet_before_every_phase) {
  Phases phases(8);
  phases.layer(20000, 24000);
  const ProgramArgs& args = phases.plan();
  CHECK_EQ(args.meetings, 5);
  for (int p = 0; p < args.count; ++p) {
    CHECK_EQ(args.phases[p].meets, p > 0);
    CHECK(args.phases[p].keeps && !args.phases[p].posts && !args.phases[p].mailed);
  }
}

}  // namespace

int main() { return run_tests(); }
