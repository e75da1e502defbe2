#include "backends/cuda/decode/handovers.h"

#include <algorithm>

namespace tcim_lite::cuda::decode {
namespace {

// From the first of what a phase reads to the end of the last.
Range span_of(const std::vector<Range>& reads) {
  Range all = reads.front();
  int64_t end = all.end();
  for (const Range& each : reads) {
    all.begin = std::min(all.begin, each.begin);
    end = std::max(end, each.end());
  }
  all.values = (end - all.begin) / 2;
  return all;
}

// Whether the ranges are adjacent, in any order, so that nothing that is posted stays unread.
bool reads_each_once(const std::vector<Range>& reads) {
  int64_t values = 0;
  for (size_t i = 0; i < reads.size(); ++i) {
    values += reads[i].values;
    for (size_t j = 0; j < i; ++j) {
      if (reads[i].space != reads[j].space || reads[i].overlaps(reads[j])) return false;
    }
  }
  return span_of(reads).values == values;
}

// Of one row.
class Handovers {
 public:
  Handovers(ProgramArgs& args, std::span<const Flow> flows) : args_(args), flows_(flows) {}

  void plan() {
    for (int p = 0; p < args_.count; ++p) {
      Phase& phase = args_.phases[p];
      phase.mailed = p > 0 && takes_mail(p);
      phase.meets = p > 0 && !phase.mailed && flows_[p].meets;
      if (phase.mailed) args_.phases[p - 1].posts = true;
      if (phase.mailed && phase.kind == Phase::Kind::Attention) place_heads(p);
      if (!phase.mailed) keep_for(p, flows_[p].reads);
      if (flows_[p].residual.values > 0) plan_residual(p);
    }
    for (int p = 0; p < args_.count; ++p) args_.phases[p].keeps |= outlives_program(p);
  }

 private:
  const Range& made(int p) const { return flows_[p].made; }
  int residual_from(int p) const { return flows_[p].residual.values > 0 ? args_.phases[p].linear.residual_from : -1; }

  // Whether p reads exactly what p - 1 makes: a mailbox is used again once all of its readers have posted.
  bool takes_mail(int p) const {
    const std::vector<Range>& reads = flows_[p].reads;
    if (!flows_[p].takes || !flows_[p - 1].posts) return false;
    if (!reads_each_once(reads) || span_of(reads) != made(p - 1) || made(p - 1).values > kMostMailed) return false;
    return args_.phases[p].kind != Phase::Kind::Attention || attention_takes_mail(p);
  }

  // A block of attention waits only for the blocks that make its own heads, so other blocks may still be in phase p - 1
  // when it is done. What those read must not be overwritten.
  bool attention_takes_mail(int p) const {
    const Phase& before = args_.phases[p - 1];
    if (before.kind != Phase::Kind::Linear) return false;
    if (!before.mailed && made(p).overlaps(span_of(flows_[p - 1].reads))) return false;
    if (flows_[p - 1].residual.values == 0) return true;
    if (residual_from(p - 1) >= 0) return residual_from(p - 1) > p - kMailBoxes;
    return !made(p).overlaps(flows_[p - 1].residual);
  }

  void place_heads(int p) {
    AttentionPhase& attention = args_.phases[p].attention;
    const auto column = [&](int read) { return int((flows_[p].reads[read].begin - made(p - 1).begin) / 2); };
    attention.q_column = column(0);
    attention.k_column = column(1);
    attention.v_column = column(2);
  }

  void plan_residual(int p) {
    Phase& phase = args_.phases[p];
    const Range& residual = flows_[p].residual;
    bool met = phase.meets;
    int maker = p - 1;
    for (; maker >= 0 && !made(maker).overlaps(residual); --maker) met |= args_.phases[maker].meets;
    if (maker < 0) return;
    if (!met && p - maker < kMailBoxes && args_.phases[maker].posts && made(maker) == residual) {
      phase.linear.residual_from = int16_t(maker);
      return;
    }
    if (!met) phase.meets = true;
    keep_for(p, {residual});
  }

  // What p reads in memory.
  void keep_for(int p, const std::vector<Range>& reads) {
    for (const Range& read : reads) {
      for (int before = p - 1; before >= 0; --before) {
        if (!made(before).overlaps(read)) continue;
        args_.phases[before].keeps = true;
        if (made(before).covers(read)) break;  // what was there before is gone
      }
    }
  }

  // Outputs are kept anyway. Other memory that a later phase overwrites is not read after the program.
  bool outlives_program(int p) const {
    for (int later = p + 1; later < args_.count; ++later) {
      if (made(later).overlaps(made(p))) return false;
    }
    return true;
  }

  ProgramArgs& args_;
  const std::span<const Flow> flows_;
};

}  // namespace

void plan_handovers(ProgramArgs& args, std::span<const Flow> flows) {
  for (int p = 0; p < args.count; ++p) {
    Phase& phase = args.phases[p];
    phase.mailed = phase.posts = false;
    phase.meets = p > 0;
    phase.keeps |= args.rows > 1;
    if (flows[p].residual.values > 0) phase.linear.residual_from = -1;
  }
  if (args.rows == 1) Handovers(args, flows).plan();
  args.meetings = 1;
  for (int p = 0; p < args.count; ++p) args.meetings += args.phases[p].meets;
}

}  // namespace tcim_lite::cuda::decode
