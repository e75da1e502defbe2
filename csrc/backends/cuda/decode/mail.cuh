// Hands over the results of a phase without a barrier: two fp16 values share a 64-bit word with a tag that names their
// phase and run, and readers poll the word until its tag matches. This takes one trip to the L2 and back instead of a
// fence, a counter and a read. NCCL's "LL" protocol does the same between GPUs.
#pragma once

#include <cuda_fp16.h>

#include "backends/cuda/decode/args.h"

namespace tcim_lite::cuda::decode {

// 64 bits are read and written atomically (PTX ISA, memory consistency model), so a word needs no ordering with other
// words.
static_assert(kMostPhases < 256, "a tag has eight bits for the phase");
struct Mail {
  uint64_t* words;  // of a phase
  uint32_t tag;

  // Values 2 i and 2 i + 1.
  __device__ __forceinline__ void post(int i, __half low, __half high) const {
    const __half2 both = __halves2half2(low, high);
    const uint64_t word = uint64_t(tag) << 32 | *reinterpret_cast<const uint32_t*>(&both);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(words + i), "l"(word) : "memory");
  }
  __device__ __forceinline__ uint64_t peek(int i) const {
    uint64_t word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(words + i) : "memory");
    return word;
  }
  __device__ __forceinline__ bool is_here(uint64_t word) const { return uint32_t(word >> 32) == tag; }
  // Words i and i + 1, i even.
  __device__ __forceinline__ void peek(int i, uint64_t (&two)[2]) const {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(two[0]), "=l"(two[1])
                 : "l"(words + i)
                 : "memory");
  }
};

// Mailboxes are used in turn. A block that posts in a Linear has read everything that the previous phase posted, and
// the posters of that phase had read everything of the phase before. So no block still reads what was posted to the
// same mailbox kMailBoxes phases earlier. Blocks of attention have read only their own heads; where this is not enough,
// plan_handovers() plans a barrier.
__device__ __forceinline__ Mail mail_of(const ProgramArgs& args, uint32_t run, int phase) {
  return {args.mail + phase % kMailBoxes * (kMostMailed / 2), run << 8 | uint32_t(phase + 1)};
}

// What a phase takes and leaves. Only a single row has mail.
template <typename Shape>
struct Handover {
  const ProgramArgs& args;
  const Phase& phase;
  uint32_t run;
  int p;

  __device__ __forceinline__ bool mailed() const { return Shape::kRows == 1 && phase.mailed; }
  __device__ __forceinline__ bool posts() const { return Shape::kRows == 1 && phase.posts; }
  __device__ __forceinline__ bool keeps() const { return Shape::kRows > 1 || phase.keeps; }
  __device__ __forceinline__ bool mails_residual() const {
    return Shape::kRows == 1 && phase.linear.residual_from >= 0;
  }
  __device__ __forceinline__ Mail x() const { return mail_of(args, run, p - 1); }
  __device__ __forceinline__ Mail y() const { return mail_of(args, run, p); }
  __device__ __forceinline__ Mail residual() const { return mail_of(args, run, phase.linear.residual_from); }
};

}  // namespace tcim_lite::cuda::decode
