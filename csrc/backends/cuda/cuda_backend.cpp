// The CUDA backend's entry: what the core finds in libtcim_backend_cuda.so.
//
// Logical device d is GPU d modulo the number of GPUs. Large memory and states lie on the GPU; small memory that is no
// state, such as lengths, embeddings and logits, lies in pinned host memory, which both sides reach by one address: the
// host reads and writes it without a call, and the first kernel of a run fetches it.
#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "backends/backend.h"
#include "backends/cuda/executable.h"
#include "backends/cuda/handles.h"
#include "backends/cuda/kernels/kernels.h"
#include "graph/plan/plan.h"

namespace tcim_lite::cuda {
namespace {

// The most that pinned memory takes of what the host uses, and of what runs hand to each other.
constexpr uint64_t kMostPinned = 1 << 20, kMostPinnedOfRuns = 64 << 10;

template <typename Bytes, Bytes (*allocate)(uint64_t)>
class Memory final : public DeviceMemory {
 public:
  explicit Memory(uint64_t bytes) : memory_(allocate(bytes == 0 ? 1 : bytes)) {
    data_ = memory_.get();
    bytes_ = bytes;
  }

 private:
  Bytes memory_;
};

using GpuMemory = Memory<DeviceBytes, device_bytes>;
using PinnedMemory = Memory<PinnedBytes, pinned_bytes>;

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int gpu_count) : gpu_count_(gpu_count) {}

  std::string_view name() const noexcept override { return "cuda"; }

  uint64_t memory_bytes(int device_id) override {
    check_process();
    const UseGpu use(gpu_of(device_id));
    size_t free_bytes = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total));
    return total;
  }

  std::shared_ptr<DeviceMemory> allocate(int device_id, uint64_t bytes, Placing placing) override {
    check_process();
    const AllocationGate gate;
    const UseGpu use(gpu_of(device_id));
    if (placing != Placing::NearDevice && bytes <= (placing == Placing::NearHost ? kMostPinned : kMostPinnedOfRuns))
      return std::make_shared<PinnedMemory>(bytes);
    auto memory = std::make_shared<GpuMemory>(bytes);
    zero_gpu(memory->data(), bytes);
    return memory;
  }

  std::byte* host_view(std::byte* device) override {
    check_process();
    cudaPointerAttributes attributes{};
    CUDA_CHECK(cudaPointerGetAttributes(&attributes, device));
    if (attributes.type == cudaMemoryTypeUnregistered) return device;  // the host's; bind() refuses it
    return attributes.type == cudaMemoryTypeHost ? static_cast<std::byte*>(attributes.hostPointer) : nullptr;
  }

  std::shared_ptr<DeviceMemory> place_weight(int device_id, WeightBytes packed, const WeightForm& form) override {
    check_process();
    const AllocationGate gate;
    const UseGpu use(gpu_of(device_id));
    if (form.format == WeightFormat::Dense) {
      auto memory = std::make_shared<GpuMemory>(packed.size());
      copy_to_gpu(memory->data(), packed.data(), packed.size());
      return memory;
    }
    // Every expert is padded to whole blocks, so together they are one matrix.
    const int64_t rows = form.shape[form.shape.size() - 2], inputs = form.shape.back();
    const int64_t padded = (rows + kBlockOutputs - 1) / kBlockOutputs * kBlockOutputs;
    const int64_t outputs = form.shape.size() == 3 ? form.shape[0] * padded : rows;
    auto memory = std::make_shared<GpuMemory>(uint64_t(placed_bytes(form.format, outputs, inputs)));
    // A slice of blocks at a time: what is uploaded need not lie on the GPU twice.
    const int64_t stride = block_bytes(form.format, inputs), blocks = (outputs + kBlockOutputs - 1) / kBlockOutputs;
    const int64_t slice = std::max<int64_t>(1, kSliceBytes / stride);
    const DeviceBytes upload = device_bytes(uint64_t(std::min(slice, blocks) * stride));
    const Stream stream = make_stream();
    for (int64_t first = 0; first < blocks; first += slice) {
      const int64_t count = std::min(slice, blocks - first);
      CUDA_CHECK(cudaMemcpyAsync(upload.get(), packed.data() + first * stride, size_t(count * stride),
                                 cudaMemcpyHostToDevice, stream.get()));
      launch_repack(form.format, upload.get(),
                    memory->data() + placed_bytes(form.format, first * kBlockOutputs, inputs), count * kBlockOutputs,
                    inputs, stream.get());
    }
    CUDA_CHECK(cudaStreamSynchronize(stream.get()));
    return memory;
  }

  void copy_to_host(void* host, const std::byte* device, uint64_t bytes) override {
    check_process();
    const AllocationGate gate;
    CUDA_CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDefault));
  }

  void copy_from_host(std::byte* device, const void* host, uint64_t bytes) override {
    check_process();
    const AllocationGate gate;
    copy_to_gpu(device, host, bytes);
  }

  std::unique_ptr<Executable> compile(std::vector<Part> parts) override {
    check_process();
    const AllocationGate gate;
    return std::make_unique<CudaExecutable>(std::move(parts), wanted_numerics(), gpu_count_);
  }

 private:
  static constexpr int64_t kSliceBytes = 64 << 20;

  int gpu_of(int device_id) const { return device_id % gpu_count_; }

  const int gpu_count_;
};

}  // namespace
}  // namespace tcim_lite::cuda

// Throws Error(Unsupported) where there is no driver or no GPU that it can use.
extern "C" __attribute__((visibility("default"))) tcim_lite::Backend* tcim_lite_open_cuda_backend() {
  using namespace tcim_lite;
  cuda::in_forked_child();  // from here on a fork is noticed
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    fail(ErrorCode::Unsupported, "TCIM_LITE_DEVICE=cuda: no GPU can be used (",
         error == cudaSuccess ? "none is visible" : cudaGetErrorString(error),
         "); check nvidia-smi and CUDA_VISIBLE_DEVICES, or unset TCIM_LITE_DEVICE to use the CPU (docs/cuda.md)");
  }
  // Never destroyed: memory may outlive every static object.
  static auto* const backend = new cuda::CudaBackend(count);
  return backend;
}
