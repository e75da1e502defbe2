// How each phase gets what those before it made: by mail (mail.cuh) or past a barrier.
#include <algorithm>
#include <array>

#include "backends/cuda/decode/args.h"
#include "graph/plan/steps.h"

namespace tcim_lite::cuda::decode {
namespace {

struct Range {
  const char* begin = nullptr;
  int64_t values = 0;  // fp16

  const char* end() const { return begin + 2 * values; }
  bool overlaps(const Range& other) const { return begin < other.end() && other.begin < end(); }
  bool covers(const Range& other) const { return begin <= other.begin && other.end() <= end(); }
  bool operator==(const Range&) const = default;
};

Range range_of(const void* begin, int64_t values) { return {static_cast<const char*>(begin), values}; }

// Of one row.
class Handovers {
 public:
  explicit Handovers(ProgramArgs& args) : args_(args) {}

  void plan() {
    for (int p = 0; p < args_.count; ++p) {
      Phase& phase = args_.phases[p];
      phase.mailed = p > 0 && takes_mail(p);
      phase.meets = p > 0 && !phase.mailed;
      if (phase.mailed) args_.phases[p - 1].posts = true;
      if (phase.mailed && phase.kind == Phase::Kind::Attention) place_heads(p);
      if (!phase.mailed) keep_for(p, reads(p));
      if (phase.kind == Phase::Kind::Linear) plan_residual(p);
    }
    for (int p = 0; p < args_.count; ++p) args_.phases[p].keeps |= outlives_program(p);
  }

 private:
  int width(int p) const {
    const Phase& phase = args_.phases[p];
    if (phase.kind == Phase::Kind::Attention) return args_.kv_heads * args_.heads_per_kv * kHeadDim;
    return phase.linear.epilogue == int(LinearSpec::Epilogue::SiluMul) ? phase.linear.outputs / 2
                                                                       : phase.linear.outputs;
  }
  Range made(int p) const {
    const Phase& phase = args_.phases[p];
    return range_of(phase.kind == Phase::Kind::Attention ? phase.attention.y : phase.linear.y, width(p));
  }
  // The residual apart. Of attention, from the first of q, k and v to the end of the last.
  Range reads(int p) const {
    const Phase& phase = args_.phases[p];
    if (phase.kind == Phase::Kind::Linear) return range_of(phase.linear.x, phase.linear.inputs);
    const auto [q, k, v] = heads_of(phase.attention);
    const char* begin = std::min({q.begin, k.begin, v.begin});
    return range_of(begin, (std::max({q.end(), k.end(), v.end()}) - begin) / 2);
  }
  // q, k and v.
  std::array<Range, 3> heads_of(const AttentionPhase& attention) const {
    const int64_t kv = int64_t(args_.kv_heads) * kHeadDim;
    return {range_of(attention.q, kv * args_.heads_per_kv), range_of(attention.k, kv), range_of(attention.v, kv)};
  }

  // Whether p reads what p - 1 makes, and all of it: a box is used again once those who read it have posted.
  bool takes_mail(int p) const {
    if (reads(p) != made(p - 1) || width(p - 1) > kMostMailed) return false;
    return args_.phases[p].kind == Phase::Kind::Linear || attention_takes_mail(p);
  }

  // A block of attention waits for the blocks that make its own heads, so others may still be at p - 1 when it is done:
  // what they read must not be written over.
  bool attention_takes_mail(int p) const {
    const Phase& before = args_.phases[p - 1];
    if (before.kind != Phase::Kind::Linear || !reads_each_once(p)) return false;
    if (!before.mailed && made(p).overlaps(reads(p - 1))) return false;
    if (before.linear.residual == nullptr) return true;
    if (before.linear.residual_from >= 0) return before.linear.residual_from > p - kMailBoxes;
    return !made(p).overlaps(range_of(before.linear.residual, before.linear.outputs));
  }
  // q, k and v lie side by side, whatever their order: then nothing that is posted stays unread.
  bool reads_each_once(int p) const {
    const auto [q, k, v] = heads_of(args_.phases[p].attention);
    return !q.overlaps(k) && !q.overlaps(v) && !k.overlaps(v) && reads(p).values == q.values + k.values + v.values;
  }

  void place_heads(int p) {
    AttentionPhase& attention = args_.phases[p].attention;
    const auto column = [&](const void* part) { return int((static_cast<const char*>(part) - made(p - 1).begin) / 2); };
    attention.q_column = column(attention.q);
    attention.k_column = column(attention.k);
    attention.v_column = column(attention.v);
  }

  void plan_residual(int p) {
    Phase& phase = args_.phases[p];
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
    for (int before = p - 1; before >= 0; --before) {
      if (!made(before).overlaps(read)) continue;
      args_.phases[before].keeps = true;
      if (made(before).covers(read)) return;  // what was there before is gone
    }
  }

  // Outputs are kept anyway. Of other memory, what a later phase writes holds nothing that is read after the program.
  bool outlives_program(int p) const {
    for (int later = p + 1; later < args_.count; ++later) {
      if (made(later).overlaps(made(p))) return false;
    }
    return true;
  }

  ProgramArgs& args_;
};

}  // namespace

void plan_handovers(ProgramArgs& args) {
  for (int p = 0; p < args.count; ++p) {
    Phase& phase = args.phases[p];
    phase.mailed = phase.posts = false;
    phase.meets = p > 0;
    phase.keeps |= args.rows > 1;
    if (phase.kind == Phase::Kind::Linear) phase.linear.residual_from = -1;
  }
  if (args.rows == 1) Handovers(args).plan();
  args.meetings = 1;
  for (int p = 0; p < args.count; ++p) args.meetings += args.phases[p].meets;
}

}  // namespace tcim_lite::cuda::decode
