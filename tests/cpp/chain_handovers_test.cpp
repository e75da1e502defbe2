// How the phases of a decode on a GPU get what earlier ones made (csrc/backends/cuda/chain_handovers.cpp). The launch
// itself needs a GPU: cuda_test.
#include <memory>
#include <vector>

#include "backends/cuda/chain_args.h"
#include "check.h"
#include "graph/plan/steps.h"

using namespace tcim_lite;
using namespace tcim_lite::cuda;

namespace {

constexpr int kHidden = 1024, kInner = 3072, kHeads = 16, kKvHeads = 8;
constexpr int kAttended = kHeads * kChainHeadDim, kProjected = (kHeads + 2 * kKvHeads) * kChainHeadDim;

// Phases over rows of fp16 in one arena.
class Chain {
 public:
  explicit Chain(int rows = 1) : args_(std::make_unique<ChainArgs>()), arena_(64 * 1024) {
    args_->rows = rows;
    args_->kv_heads = kKvHeads;
    args_->heads_per_kv = kHeads / kKvHeads;
  }

  uint16_t* at(int offset) { return arena_.data() + offset; }
  ChainPhase& phase(int p) { return args_->phases[p]; }

  void linear(const void* x, int inputs, void* y, int outputs, const void* residual = nullptr, bool silu = false) {
    ChainPhase& phase = next(ChainPhase::Kind::Linear);
    phase.linear = {};
    phase.linear.x = x;
    phase.linear.y = y;
    phase.linear.residual = residual;
    phase.linear.inputs = inputs;
    phase.linear.outputs = outputs;
    phase.linear.epilogue = int8_t(silu ? LinearSpec::Epilogue::SiluMul : LinearSpec::Epilogue::Store);
  }
  void attention(const uint16_t* q, void* y) {
    ChainPhase& phase = next(ChainPhase::Kind::Attention);
    phase.attention = {};
    phase.attention.q = q;
    phase.attention.k = q + kAttended;
    phase.attention.v = q + kAttended + kKvHeads * kChainHeadDim;
    phase.attention.y = y;
  }
  // As a plan has it: what is dead gives its place to what comes.
  void layer(uint16_t* x, uint16_t* y) {
    linear(x, kHidden, at(0), kProjected);
    attention(at(0), at(8192));
    linear(at(8192), kAttended, at(16384), kHidden, x);
    linear(at(16384), kHidden, at(0), 2 * kInner, nullptr, true);
    linear(at(0), kInner, y, kHidden, at(16384));
  }

  void two_layers_and_head() {
    layer(at(20000), at(24000));
    layer(at(24000), at(28000));
    linear(at(28000), kHidden, at(40000), 9000);
  }

  const ChainArgs& plan() {
    plan_handovers(*args_);
    return *args_;
  }

 private:
  ChainPhase& next(ChainPhase::Kind kind) {
    ChainPhase& phase = args_->phases[args_->count++];
    phase.kind = kind;
    return phase;
  }

  const std::unique_ptr<ChainArgs> args_;
  std::vector<uint16_t> arena_;
};

void test_a_row_goes_through_layers_by_mail() {
  Chain chain;
  chain.two_layers_and_head();
  const ChainArgs& args = chain.plan();
  CHECK_EQ(args.meetings, 1);
  for (int p = 0; p < args.count; ++p) {
    CHECK(!args.phases[p].meets);
    CHECK_EQ(args.phases[p].mailed, p > 0);
    CHECK_EQ(args.phases[p].posts, p + 1 < args.count);
  }
  CHECK_EQ(args.phases[6].attention.k_column, kAttended);
  CHECK_EQ(args.phases[6].attention.v_column, kAttended + kKvHeads * kChainHeadDim);
}

void test_residuals_come_by_mail_where_the_chain_made_them() {
  Chain chain;
  chain.two_layers_and_head();
  const ChainArgs& args = chain.plan();
  for (const auto& [phase, maker] : {std::pair{2, -1}, {4, 2}, {7, 4}, {9, 7}})
    CHECK_EQ(int(args.phases[phase].linear.residual_from), maker);
}

void test_only_what_no_later_phase_writes_over_is_stored() {
  Chain chain;
  chain.two_layers_and_head();
  const ChainArgs& args = chain.plan();
  std::vector<int> kept;
  for (int p = 0; p < args.count; ++p) {
    if (args.phases[p].keeps) kept.push_back(p);
  }
  CHECK((kept == std::vector<int>{4, 6, 7, 8, 9, 10}));
}

void test_a_part_of_the_phase_before_is_read_past_a_barrier() {
  Chain chain;
  chain.linear(chain.at(0), kHidden, chain.at(4000), kHidden);
  chain.linear(chain.at(4000 + kHidden / 2), kHidden / 2, chain.at(8000), kHidden);
  chain.linear(chain.at(8000), kHidden, chain.at(4000), kHidden);
  const ChainArgs& args = chain.plan();
  CHECK_EQ(args.meetings, 2);
  CHECK(args.phases[1].meets && !args.phases[1].mailed);
  CHECK(args.phases[0].keeps && !args.phases[0].posts);
  CHECK(args.phases[2].mailed && !args.phases[2].meets);
}

void test_what_is_read_a_second_time_is_read_past_a_barrier() {
  Chain chain;
  for (const int y : {4000, 8000, 12000}) chain.linear(chain.at(y == 4000 ? 0 : 4000), kHidden, chain.at(y), kHidden);
  const ChainArgs& args = chain.plan();
  CHECK(args.phases[1].mailed && args.phases[0].posts);
  CHECK(args.phases[2].meets && args.phases[0].keeps);
}

void test_a_residual_from_far_back_is_read_past_a_barrier() {
  for (const int between : {kMailBoxes - 2, kMailBoxes - 1}) {
    Chain chain;
    for (int i = 0; i <= between; ++i) chain.linear(chain.at(2000 * i), kHidden, chain.at(2000 * (i + 1)), kHidden);
    chain.linear(chain.at(2000 * (between + 1)), kHidden, chain.at(30000), kHidden, chain.at(2000));
    const ChainArgs& args = chain.plan();
    const ChainPhase& last = args.phases[args.count - 1];
    const bool far = between == kMailBoxes - 1;
    CHECK_EQ(last.meets, far);
    CHECK_EQ(int(last.linear.residual_from), far ? -1 : 0);
    CHECK(last.mailed);
    CHECK(!far || args.phases[0].keeps);
  }
}

void test_attention_that_leaves_a_part_unread_takes_no_mail() {
  for (const bool within : {false, true}) {
    Chain chain;
    chain.linear(chain.at(20000), kHidden, chain.at(0), kProjected + 64);
    chain.attention(chain.at(0), chain.at(8192));
    ChainAttention& attention = chain.phase(1).attention;
    if (within) attention.v = static_cast<const uint16_t*>(attention.v) + 64;
    CHECK(chain.plan().phases[1].meets);
  }
}

void test_attention_that_reads_a_part_twice_takes_no_mail() {
  Chain chain;
  chain.linear(chain.at(20000), kHidden, chain.at(0), kProjected);
  chain.attention(chain.at(0), chain.at(8192));
  chain.phase(1).attention.k = chain.phase(1).attention.v;
  CHECK(chain.plan().phases[1].meets);
}

// Its blocks may be done before all of the phase before is.
void test_attention_takes_no_mail_where_it_writes_over_what_the_phase_before_reads() {
  for (const bool residual : {false, true}) {
    Chain chain;
    chain.linear(chain.at(residual ? 40000 : 8192), kHidden, chain.at(0), kProjected,
                 residual ? chain.at(8192) : nullptr);
    chain.attention(chain.at(0), chain.at(8192));
    CHECK(chain.plan().phases[1].meets);
  }
}

void test_attention_takes_no_mail_into_a_box_that_the_phase_before_reads() {
  for (const int between : {kMailBoxes - 3, kMailBoxes - 2}) {
    Chain chain;
    chain.linear(chain.at(60000), kHidden, chain.at(30000), kProjected);
    const uint16_t* x = chain.at(30000);
    int inputs = kProjected;
    for (int i = 0; i < between; ++i) {
      chain.linear(x, inputs, chain.at(36000 + 2000 * i), kHidden);
      x = chain.at(36000 + 2000 * i);
      inputs = kHidden;
    }
    chain.linear(x, inputs, chain.at(0), kProjected, chain.at(30000));
    chain.attention(chain.at(0), chain.at(8192));
    const ChainArgs& args = chain.plan();
    CHECK_EQ(int(args.phases[args.count - 2].linear.residual_from), 0);
    CHECK_EQ(args.phases[args.count - 1].meets, between == kMailBoxes - 2);
  }
}

void test_an_output_is_stored_though_another_overlaps_it() {
  Chain chain;
  chain.linear(chain.at(0), kHidden, chain.at(4000), kHidden);
  chain.phase(0).keeps = true;
  chain.linear(chain.at(4000), kHidden, chain.at(4500), kHidden);
  const ChainArgs& args = chain.plan();
  CHECK(args.phases[0].keeps && args.phases[1].keeps && args.phases[1].mailed);
}

void test_several_rows_meet_before_every_phase() {
  Chain chain(8);
  chain.layer(chain.at(20000), chain.at(24000));
  const ChainArgs& args = chain.plan();
  CHECK_EQ(args.meetings, 5);
  for (int p = 0; p < args.count; ++p) {
    CHECK_EQ(args.phases[p].meets, p > 0);
    CHECK(args.phases[p].keeps && !args.phases[p].posts && !args.phases[p].mailed);
  }
}

}  // namespace

int main() {
  test_a_row_goes_through_layers_by_mail();
  test_residuals_come_by_mail_where_the_chain_made_them();
  test_only_what_no_later_phase_writes_over_is_stored();
  test_a_part_of_the_phase_before_is_read_past_a_barrier();
  test_what_is_read_a_second_time_is_read_past_a_barrier();
  test_a_residual_from_far_back_is_read_past_a_barrier();
  test_attention_that_leaves_a_part_unread_takes_no_mail();
  test_attention_that_reads_a_part_twice_takes_no_mail();
  test_attention_takes_no_mail_where_it_writes_over_what_the_phase_before_reads();
  test_attention_takes_no_mail_into_a_box_that_the_phase_before_reads();
  test_an_output_is_stored_though_another_overlaps_it();
  test_several_rows_meet_before_every_phase();
  return check_result();
}
