// How each phase of a chain gets what those before it made: by mail (kernels/chain_mail.cuh) or past a barrier.
#include <algorithm>

#include "backends/cuda/chain_args.h"
#include "graph/plan/steps.h"

namespace tcim_lite::cuda {
namespace {

struct Range {
  const char* begin = nullptr;
  int64_t values = 0;  // fp16

  bool overlaps(const Range& other) const {
    return begin < other.begin + 2 * other.values && other.begin < begin + 2 * values;
  }
  bool operator==(const Range&) const = default;
};

Range range_of(const void* begin, int64_t values) { return {static_cast<const char*>(begin), values}; }

// Of a chain of one row.
class Handovers {
 public:
  explicit Handovers(ChainArgs& args) : args_(args) {}

  void plan() {
    for (int p = 0; p < args_.count; ++p) {
      ChainPhase& phase = args_.phases[p];
      phase.mailed = p > 0 && takes_mail(p);
      phase.meets = p > 0 && !phase.mailed;
      if (phase.mailed) args_.phases[p - 1].posts = true;
      if (!phase.mailed) keep_for(p, reads(p));
      if (phase.kind == ChainPhase::Kind::Linear) plan_residual(p);
    }
    for (int p = 0; p < args_.count; ++p) args_.phases[p].keeps |= outlives_chain(p);
  }

 private:
  int width(int p) const {
    const ChainPhase& phase = args_.phases[p];
    if (phase.kind == ChainPhase::Kind::Attention) return args_.kv_heads * args_.heads_per_kv * kChainHeadDim;
    return phase.linear.epilogue == int(LinearSpec::Epilogue::SiluMul) ? phase.linear.outputs / 2
                                                                       : phase.linear.outputs;
  }
  Range made(int p) const {
    const ChainPhase& phase = args_.phases[p];
    return range_of(phase.kind == ChainPhase::Kind::Attention ? phase.attention.y : phase.linear.y, width(p));
  }
  // The residual apart. Of attention, from the first of q, k and v to the end of the last.
  Range reads(int p) const {
    const ChainPhase& phase = args_.phases[p];
    if (phase.kind == ChainPhase::Kind::Linear) return range_of(phase.linear.x, phase.linear.inputs);
    const auto* q = static_cast<const char*>(phase.attention.q);
    const auto* k = static_cast<const char*>(phase.attention.k);
    const auto* v = static_cast<const char*>(phase.attention.v);
    const int64_t kv = int64_t(args_.kv_heads) * kChainHeadDim;
    const char* begin = std::min({q, k, v});
    const char* end = std::max({q + 2 * kv * args_.heads_per_kv, k + 2 * kv, v + 2 * kv});
    return range_of(begin, (end - begin) / 2);
  }

  // Whether p reads what p - 1 makes, and all of it: a box is used again once those who read it have posted.
  bool takes_mail(int p) {
    ChainPhase& phase = args_.phases[p];
    if (reads(p) != made(p - 1) || width(p - 1) > kMostMailed || width(p - 1) % 2 != 0) return false;
    if (phase.kind == ChainPhase::Kind::Linear) return true;
    if (width(p - 1) != args_.kv_heads * (args_.heads_per_kv + 2) * kChainHeadDim) return false;
    const auto column = [&](const void* part) { return int((static_cast<const char*>(part) - made(p - 1).begin) / 2); };
    phase.attention.q_column = column(phase.attention.q);
    phase.attention.k_column = column(phase.attention.k);
    phase.attention.v_column = column(phase.attention.v);
    return true;
  }

  void plan_residual(int p) {
    ChainPhase& phase = args_.phases[p];
    phase.linear.residual_from = -1;
    if (phase.linear.residual == nullptr) return;
    const Range residual = range_of(phase.linear.residual, phase.linear.outputs);
    bool met = phase.meets;
    int maker = p - 1;
    for (; maker >= 0 && !made(maker).overlaps(residual); --maker) met |= args_.phases[maker].meets;
    if (maker < 0) return;
    if (!met && p - maker < kMailBoxes && args_.phases[maker].posts && made(maker) == residual) {
      phase.linear.residual_from = int16_t(maker);
      return;
    }
    if (!met) phase.meets = true;
    keep_for(p, residual);
  }

  // What p reads in memory.
  void keep_for(int p, const Range& read) {
    for (int before = 0; before < p; ++before) args_.phases[before].keeps |= made(before).overlaps(read);
  }

  // Memory that a later phase writes holds nothing that is read after the chain.
  bool outlives_chain(int p) const {
    for (int later = p + 1; later < args_.count; ++later) {
      if (made(later).overlaps(made(p))) return false;
    }
    return true;
  }

  ChainArgs& args_;
};

}  // namespace

void plan_handovers(ChainArgs& args) {
  for (int p = 0; p < args.count; ++p) {
    ChainPhase& phase = args.phases[p];
    phase.mailed = phase.posts = false;
    phase.meets = p > 0;
    phase.keeps = args.rows > 1;
    if (phase.kind == ChainPhase::Kind::Linear) phase.linear.residual_from = -1;
  }
  if (args.rows == 1) Handovers(args).plan();
  args.meetings = 1;
  for (int p = 0; p < args.count; ++p) args.meetings += args.phases[p].meets;
}

}  // namespace tcim_lite::cuda
