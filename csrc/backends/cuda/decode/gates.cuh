// Gates in shared memory, by which two warps tell each other how far they are: mbarriers.
#pragma once

#include "backends/cuda/kernels/mma.cuh"

namespace tcim_lite::cuda::decode {

// Opens each time that `arrivals` have arrived.
class Gate {
 public:
  __device__ __forceinline__ void start(int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(address()) : "memory");
  }
  // Once this thread's copies so far are there.
  __device__ __forceinline__ void arrive_after_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address()) : "memory");
  }
  // Until it opens the next time; parity: of how often it had opened before.
  __device__ __forceinline__ void wait(unsigned parity) {
    uint32_t open;
    do {
      asm volatile(
          "{\n.reg .pred open;\nmbarrier.try_wait.parity.shared.b64 open, [%1], %2;\nselp.u32 %0, 1, 0, open;\n}"
          : "=r"(open)
          : "r"(address()), "r"(parity)
          : "memory");
    } while (open == 0);
  }

 private:
  __device__ __forceinline__ uint32_t address() const { return shared_address(&state_); }

  uint64_t state_;
};

// Of the stages of a ring that one warp fills for another: the copies are there; the stage has been given up.
template <int Stages>
struct RingGates {
  Gate full[Stages], empty[Stages];
};

}  // namespace tcim_lite::cuda::decode
