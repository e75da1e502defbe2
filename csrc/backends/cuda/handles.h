// RAII over the CUDA runtime. Every call is checked.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "backends/cuda/check.h"
#include "base/error.h"
#include "base/no_copy.h"

namespace tcim_lite::cuda {

// True in a process that was forked after CUDA was started: nothing there may touch CUDA, destructors included.
bool in_forked_child() noexcept;
// Throws Error(State) there.
void check_process();

template <auto Destroy>
struct Destroyer {
  template <typename Handle>
  void operator()(Handle handle) const noexcept {
    if (!in_forked_child()) Destroy(handle);
  }
};
template <typename Handle, auto Destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<Destroy>>;

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using CapturedGraph = Owned<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;
// Allocating, freeing, copying or waiting in another thread invalidates a capture. Threads hold this gate shared for
// such calls, and a capture holds it exclusively. The capturing thread itself may pass.
class AllocationGate : public NoCopy {
 public:
  AllocationGate();
  ~AllocationGate();
};
class CaptureGate : public NoCopy {
 public:
  CaptureGate();
  ~CaptureGate();
};

void free_device(std::byte* data) noexcept;
void free_pinned(std::byte* data) noexcept;
using DeviceBytes = Owned<std::byte*, free_device>;  // on the current GPU
using PinnedBytes = Owned<std::byte*, free_pinned>;  // host memory that every GPU reaches by the same address

Stream make_stream();
Event make_event();
DeviceBytes device_bytes(uint64_t bytes);  // null for 0 bytes; contents unspecified
PinnedBytes pinned_bytes(uint64_t bytes);  // zeroed

// From the host, or zeros; both are there when these return. CUDA's own return earlier: the copy when pageable bytes
// are staged, the other at once, and streams made by make_stream() do not wait for what is still to come.
void copy_to_gpu(void* to, const void* from, uint64_t bytes);
void zero_gpu(void* to, uint64_t bytes);

// Lets kernels of a GPU read the memory of another, where the machine connects the two.
void connect(int gpu, int other);
bool reads(int gpu, int other);  // whether they do; a GPU reads its own

// Makes a GPU current for the calling thread, until the end of the scope.
class UseGpu : public NoCopy {
 public:
  explicit UseGpu(int gpu) {
    CUDA_CHECK(cudaGetDevice(&before_));
    if (before_ != gpu) CUDA_CHECK(cudaSetDevice(gpu));
    changed_ = before_ != gpu;
  }
  ~UseGpu() {
    if (changed_) cudaSetDevice(before_);
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace tcim_lite::cuda
