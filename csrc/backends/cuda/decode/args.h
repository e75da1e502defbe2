// What decode in one launch computes: the arguments of its kernel (kernel.h).
#pragma once

#include <algorithm>
#include <cstdint>

namespace tcim_lite::cuda::decode {

// y = x W^T of fp16 rows, with norm, bias and epilogue as in LinearArgs. With `chosen` experts, `weights` and `bias`
// are those of all experts, and the block's route says whose are meant: y is the chosen ones' side by side, `outputs`
// and `tiles` counting all of them, or, with `combines`, the sum over them by their shares, x having `inputs` for each.
struct LinearPhase {
  const void* x;
  const char* codes;  // not null: x is there quantised
  const void* weights;
  const float* norm_weight;
  const float* bias;
  union {
    const void* residual;
    struct {
      float alpha, limit;  // of kClampedGlu
    } clamp;
  };
  void* y;
  float epsilon, inverse_inputs;
  int x_stride, residual_stride, y_stride;
  int inputs, outputs, tiles;
  int8_t epilogue, blocks;  // LinearSpec::Epilogue or kClampedGlu; of 16 outputs in a tile
  int16_t residual_from;    // the phase whose mail it is, or -1
  int8_t chosen;            // 0: there are no experts
  bool combines;
  // Of several rows: how many sums of squares of each row of x there are (ProgramArgs::squares), or -1 if each tile
  // leaves the sum of what it makes of a row.
  int16_t squares;
};
constexpr int kClampedGlu = 3;  // SiluMulSpec::clamped()

// Which experts a row takes, and their shares: computed by each block for itself.
struct RoutePhase {
  const void* logits;  // [experts]
  int16_t experts, chosen;
  bool softmax_first, normalise;
};

// Attention of the projection's q, k and v with norm and RoPE; k and v become rows *valid .. of the caches.
struct AttentionPhase {
  const void* q;  // rows of x_stride, as k and v
  const void* k;
  const void* v;
  const float* q_norm;  // null: none
  const float* k_norm;
  void* y;
  char* codes;  // not null: of several rows, y quantised as well
  int x_stride, y_stride;
  int q_column, k_column, v_column;  // in the mail
  int caches;                        // its first of ProgramArgs::caches
  float q_epsilon, k_epsilon, scale;
};

// x to codes, once for all blocks.
struct QuantizePhase {
  const void* x;
  char* codes;
  int x_stride, inputs;
};

// An elementwise op that no Linear takes along.
struct ElementwisePhase {
  int op;  // an ElementwiseOp, or kElementwiseOps: SiLU-mul of a
  const void* a;
  const void* b;  // null for SiLU-mul
  void* y;        // [rows, cols]; a of SiLU-mul has twice as many columns, gate and up alternating in blocks of 16
  int a_stride, b_stride, y_stride, cols;
};

struct Phase {
  // Router: a Linear of few outputs, whose weights have the head's format.
  enum class Kind : uint8_t { Linear, Attention, Quantize, Elementwise, Router, Route } kind;
  bool meets;   // begins when all blocks are done with the phase before
  bool mailed;  // x, or q, k and v, are the mail of the phase before
  bool posts;   // y goes to the mail
  bool keeps;   // y is stored
  union {
    LinearPhase linear;  // of Router, too
    RoutePhase route;
    AttentionPhase attention;
    QuantizePhase quantize;
    ElementwisePhase elementwise;
  };
};

// Whether the ring fetches weights for such a phase, whose operands begin with a LinearPhase.
constexpr bool has_weights_in_ring(Phase::Kind kind) { return kind == Phase::Kind::Linear; }

constexpr int kMostRows = 8;
// What a kernel's parameters hold.
constexpr int kMostPhases = 230;
constexpr int kMostCaches = 1024;
constexpr int kMailBoxes = 4;       // the residual of a layer's first half comes from three phases back
constexpr int kMostMailed = 16384;  // values of a phase
constexpr int kMailBytes = kMailBoxes * kMostMailed * 4;

struct ProgramArgs {
  int count = 0;
  bool experts = false;                    // the kernel for a model that has them
  bool looks_ahead = false;                // while blocks wait, tiles behind the rings are fetched into the L2
  int rows = 0, slots = 0, slot_rows = 0;  // rows = slots * slot_rows; no slots: no attention
  int heads_per_kv = 0, kv_heads = 0, splits = 0, context = 0, table_rows = 0;
  const void* cos = nullptr;  // null: no RoPE
  const void* sin = nullptr;
  const int* valid[kMostRows] = {};  // by slot
  const int* current[kMostRows] = {};
  const int* refused = nullptr;
  int* odd = nullptr;           // as in AttentionArgs
  float* partial = nullptr;     // [rows, kv_heads, splits, heads_per_kv, kLeft]
  int* arrived = nullptr;       // [rows, kv_heads], 0 between runs
  unsigned* barrier = nullptr;  // two: 0 between runs; the number of runs so far
  uint64_t* mail = nullptr;     // kMailBytes
  float* squares = nullptr;     // [rows, kMostSquares]: what the tiles of a Linear leave
  int meetings = 0;             // at the barrier, with that at the end
  Phase phases[kMostPhases];
  void* caches[kMostCaches];  // of each attention, each slot: keys, values
};

constexpr int kHeadDim = 128;
constexpr int kMostSquares = 1024;  // of a row
// What a block leaves of a head where several share its keys: the elements, then the maximum and the sum.
constexpr int kLeft = kHeadDim + 4;
constexpr int kMostInputs = 16384;
constexpr int kMostWarps = 16;
constexpr int kFewInputs = 4096;   // of the widest Linear; up to here a single row is the work of half as many warps
constexpr int kSomeInputs = 8192;  // the same, of 4-bit weights; 1.7B has 6,144, and 4B, with 9,728, would lose 4 %
// A single row of a model with experts is the work of half as many warps, too; all of its inputs are few, but for those
// of the sum over experts.
constexpr int kMostExperts = 256;
constexpr int kMostChosen = kMostWarps / 2;  // of a row: where they are combined, each has a warp or several
constexpr int kMostCombined = 12288;
constexpr int most_heads_per_kv(bool experts) { return experts ? 8 : 4; }
// Quantised rows: for each 64 inputs the codes of all rows, then their scales (fp32).
constexpr int kCodesGroup = kMostRows * (64 + 4);
constexpr int kMostCodesBytes = kMostInputs / 64 * kCodesGroup;
// From so many inputs on, quantising several rows in each block costs more than a phase that does it once.
constexpr int kManyInputs = 8192;

// From so many inputs of the widest Linear on, blocks of a single 4-bit row look ahead: 8B's do, 4B would gain nothing
// and 1.7B lose 2 %.
constexpr int kFarInputs = 12288;

inline int most_inputs(const ProgramArgs& args) {
  int most = 0;
  for (int p = 0; p < args.count; ++p) {
    if (has_weights_in_ring(args.phases[p].kind)) most = std::max(most, args.phases[p].linear.inputs);
  }
  return most;
}

}  // namespace tcim_lite::cuda::decode
