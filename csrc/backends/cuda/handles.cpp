#include "backends/cuda/handles.h"

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <shared_mutex>

namespace tcim_lite::cuda {
namespace {

std::atomic<bool> g_forked_child{false};

// Never destroyed: memory may outlive every static object.
std::shared_mutex& gate() {
  static auto* const mutex = new std::shared_mutex;
  return *mutex;
}
thread_local int t_inside = 0;  // gates of this thread: only the outermost locks

}  // namespace

// The handler is set when this library is opened, which is before CUDA starts.
bool in_forked_child() noexcept {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { g_forked_child = true; });
  (void)registered;
  return g_forked_child.load(std::memory_order_relaxed);
}

void check_process() {
  if (!in_forked_child()) return;
  fail(ErrorCode::State,
       "this process was forked after CUDA was started, and CUDA does not survive a fork; fork before ",
       "the first load, or start processes with multiprocessing's 'spawn'");
}

void throw_cuda_error(cudaError_t error, const char* expression, const char* file, int line) {
  const char* name = std::strrchr(file, '/');
  cudaGetLastError();  // a later launch must not report this one again
  if (error == cudaErrorMemoryAllocation) {
    size_t free_bytes = 0, total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    fail(ErrorCode::Device, "the GPU is out of memory: ", free_bytes >> 20, " of ", total >> 20,
         " MiB are free; free modules or tensors, or use a smaller context (", expression, ")");
  }
  fail(ErrorCode::Device, "CUDA: ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ") from ", expression,
       " at ", name == nullptr ? file : name + 1, ":", line, "; after such an error start the process again");
}

AllocationGate::AllocationGate() {
  if (t_inside++ == 0) gate().lock_shared();
}
AllocationGate::~AllocationGate() {
  if (--t_inside == 0) gate().unlock_shared();
}
// Runs begin outside of every gate.
CaptureGate::CaptureGate() {
  gate().lock();
  ++t_inside;
}
CaptureGate::~CaptureGate() {
  --t_inside;
  gate().unlock();
}

void free_device(std::byte* data) noexcept {
  const AllocationGate gate;
  cudaFree(data);
}
void free_pinned(std::byte* data) noexcept {
  const AllocationGate gate;
  cudaFreeHost(data);
}

Stream make_stream() {
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

Event make_event() {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event);
}

DeviceBytes device_bytes(uint64_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  CUDA_CHECK(cudaMalloc(&data, bytes));
  return DeviceBytes(static_cast<std::byte*>(data));
}

void copy_to_gpu(void* to, const void* from, uint64_t bytes) {
  cudaPointerAttributes place{};
  CUDA_CHECK(cudaPointerGetAttributes(&place, to));
  const UseGpu use(place.device);  // whose stream the copy is on
  CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
  CUDA_CHECK(cudaStreamSynchronize(cudaStreamLegacy));
}

void zero_gpu(void* to, uint64_t bytes) {
  CUDA_CHECK(cudaMemset(to, 0, bytes));
  CUDA_CHECK(cudaStreamSynchronize(cudaStreamLegacy));
}

bool reads(int gpu, int other) {
  if (gpu == other) return true;
  int connected = 0;
  CUDA_CHECK(cudaDeviceCanAccessPeer(&connected, gpu, other));
  return connected != 0;
}

void connect(int gpu, int other) {
  if (gpu == other || !reads(gpu, other)) return;
  const UseGpu use(gpu);
  const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError();  // by another executable, or by another library of the process
  else
    CUDA_CHECK(error);
}

PinnedBytes pinned_bytes(uint64_t bytes) {
  void* data = nullptr;
  CUDA_CHECK(cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
  std::memset(data, 0, bytes);
  return PinnedBytes(static_cast<std::byte*>(data));
}

}  // namespace tcim_lite::cuda
