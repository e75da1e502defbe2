#include "backends/cuda/executable.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "graph/plan/cache_rows.h"
#include "graph/plan/lengths.h"

namespace tcim_lite::cuda {
namespace {

constexpr size_t kMostBounds = 4;  // graphs kept, each for one set of input and output memory

bool same(const PartMemory& a, const PartMemory& b) { return a.inputs == b.inputs && a.outputs == b.outputs; }

// Where the host reads the int32 at `device`, or null.
const int32_t* host_address(const std::byte* device) {
  cudaPointerAttributes attributes{};
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, device));
  return attributes.type == cudaMemoryTypeHost ? static_cast<const int32_t*>(attributes.hostPointer) : nullptr;
}

}  // namespace

struct CudaExecutable::Bound {
  std::vector<PartMemory> memory;
  // Lengths and positions of part 0: value id, and where the host finds them.
  std::vector<std::pair<uint32_t, const int32_t*>> integers;
  GraphExec graph;
};

CudaExecutable::CudaExecutable(std::vector<Part> parts, Numerics numerics, int gpu_count)
    : flags_(pinned_bytes(sizeof(HostFlags))) {
  for (Part& part : parts) {
    const int gpu = part.device_id % gpu_count;
    const UseGpu use(gpu);
    parts_.push_back(
        std::make_unique<CudaPart>(std::move(part), numerics, gpu, reinterpret_cast<HostFlags*>(flags_.get())));
    parts_.back()->check_exchange(*parts_.front());
    events_.push_back(make_event());
  }
  for (const auto& part : parts_) {
    for (const auto& other : parts_) connect(part->gpu(), other->gpu());
  }
}

CudaExecutable::~CudaExecutable() = default;

void CudaExecutable::run(std::span<const PartMemory> memory) {
  check_process();
  const UseGpu use(parts_.front()->gpu());
  Bound& bound = bound_for(memory);
  check_lengths(bound);
  cudaStream_t stream = parts_.front()->stream();
  CUDA_CHECK(cudaGraphLaunch(bound.graph.get(), stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  take_flags(bound);
  if (!times_steps_) return;
  for (const auto& part : parts_) {
    const UseGpu its_own(part->gpu());
    part->add_step_times(step_times_);
  }
}

void CudaExecutable::time_steps(bool on) {
  check_process();
  bounds_.clear();  // the graphs have events, or lack them
  times_steps_ = on;
  step_times_.clear();
  for (const auto& part : parts_) {
    const UseGpu use(part->gpu());
    part->time_steps(on);
  }
}

CudaExecutable::Bound& CudaExecutable::bound_for(std::span<const PartMemory> memory) {
  for (auto bound = bounds_.begin(); bound != bounds_.end(); ++bound) {
    if (!std::equal(memory.begin(), memory.end(), bound->memory.begin(), bound->memory.end(), same)) continue;
    if (bound != bounds_.begin()) bounds_.splice(bounds_.begin(), bounds_, bound);
    return bounds_.front();
  }
  Bound fresh;
  fresh.memory.assign(memory.begin(), memory.end());
  for (size_t rank = 0; rank < parts_.size(); ++rank) parts_[rank]->bind(memory[rank]);
  const CudaPart& first = *parts_.front();
  const auto add_integers = [&](uint32_t id) {
    if (id == kNoValue) return;
    fresh.integers.emplace_back(id, host_address(memory.front().inputs[first.port_of(id)]));
  };
  for (const LengthRule& rule : first.plan().lengths) {
    add_integers(rule.slot.valid);
    add_integers(rule.slot.current);
  }
  for (const PositionRule& rule : first.plan().positions) {
    add_integers(rule.positions);
    add_integers(rule.current);
  }
  capture(fresh);
  bounds_.push_front(std::move(fresh));
  if (bounds_.size() > kMostBounds) bounds_.pop_back();
  return bounds_.front();
}

void CudaExecutable::capture(Bound& bound) {
  const CaptureGate gate;
  cudaStream_t stream = parts_.front()->stream();
  // The first recording is discarded with its graph. It only performs what has to happen once, such as creating a
  // cuBLAS handle, so that the second recording need not.
  for (const bool keep : {false, true}) {
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    cudaGraph_t captured = nullptr;
    try {
      record(bound);
    } catch (...) {
      cudaStreamEndCapture(stream, &captured);
      const CapturedGraph dropped(captured);
      throw;
    }
    CUDA_CHECK(cudaStreamEndCapture(stream, &captured));
    const CapturedGraph graph(captured);
    if (!keep) continue;
    cudaGraphExec_t exec = nullptr;
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph.get(), 0));
    bound.graph.reset(exec);
    CUDA_CHECK(cudaGraphUpload(exec, stream));
  }
}

void CudaExecutable::record(const Bound& bound) {
  const auto each = [&](const auto& call) {
    for (size_t rank = 0; rank < parts_.size(); ++rank) {
      const UseGpu use(parts_[rank]->gpu());
      break_overlap();
      call(*parts_[rank], bound.memory[rank]);
    }
  };
  // The other parts' streams join the capture of the first one's.
  if (parts_.size() > 1) {
    CUDA_CHECK(cudaEventRecord(events_.front().get(), parts_.front()->stream()));
    for (size_t rank = 1; rank < parts_.size(); ++rank)
      CUDA_CHECK(cudaStreamWaitEvent(parts_[rank]->stream(), events_.front().get()));
  }
  each([](CudaPart& part, const PartMemory&) { part.launch_inputs(); });
  for (size_t gather = 0; gather < parts_.front()->num_gathers(); ++gather) {
    each([&](CudaPart& part, const PartMemory&) { part.launch_until(gather); });
    meet();
    for (const auto& from : parts_) {
      for (const auto& to : parts_) {
        const UseGpu use(to->gpu());
        break_overlap();
        from->give(gather, *to);
      }
    }
    meet();  // before any part overwrites what another part still reads
  }
  each([](CudaPart& part, const PartMemory& memory) {
    part.launch_until(part.num_gathers());
    part.launch_outputs(memory);
  });
  if (parts_.size() > 1) meet();
}

// Every part's stream waits for all others.
void CudaExecutable::meet() {
  for (size_t rank = 0; rank < parts_.size(); ++rank) {
    const UseGpu use(parts_[rank]->gpu());
    CUDA_CHECK(cudaEventRecord(events_[rank].get(), parts_[rank]->stream()));
  }
  for (size_t rank = 0; rank < parts_.size(); ++rank) {
    const UseGpu use(parts_[rank]->gpu());
    for (size_t other = 0; other < parts_.size(); ++other) {
      if (other != rank) CUDA_CHECK(cudaStreamWaitEvent(parts_[rank]->stream(), events_[other].get()));
    }
  }
}

void CudaExecutable::check_lengths(const Bound& bound) {
  const CudaPart& first = *parts_.front();
  std::vector<int32_t> copied;
  const auto read = [&](uint32_t id, int64_t count) -> const int32_t* {
    const auto found =
        std::find_if(bound.integers.begin(), bound.integers.end(), [&](const auto& each) { return each.first == id; });
    if (found->second != nullptr) return found->second;
    copied.resize(size_t(count));
    const AllocationGate gate;
    CUDA_CHECK(cudaMemcpy(copied.data(), bound.memory.front().inputs[first.port_of(id)], size_t(count) * 4,
                          cudaMemcpyDefault));
    return copied.data();
  };
  tcim_lite::check_lengths(first.plan(), first.graph(), read, warned_context_);
}

void CudaExecutable::take_flags(const Bound& bound) {
  auto* flags = reinterpret_cast<volatile HostFlags*>(flags_.get());
  const int refused = flags->refused, odd_attention = flags->odd_attention;
  flags->refused = 0;
  flags->odd_attention = 0;
  if (refused != 0) raise_refusal(uint32_t(refused - 1));
  if (odd_attention != 0) check_caches(bound);
}

void CudaExecutable::raise_refusal(uint32_t port) {
  for (const auto& part : parts_) {
    const UseGpu use(part->gpu());
    part->clear_refusal();
  }
  const CudaPart& first = *parts_.front();
  for (const Plan::FloatInput& input : first.plan().float_inputs) {
    if (input.port == port) refuse_input(first.graph(), input);
  }
  fail(ErrorCode::Internal, "run: input ", port, " was refused, which is no float input");
}

void CudaExecutable::check_caches(const Bound& bound) {
  std::vector<std::byte> copy;
  for (size_t rank = 0; rank < parts_.size(); ++rank) {
    const CudaPart& part = *parts_[rank];
    const std::vector<std::byte*>& inputs = bound.memory[rank].inputs;
    const UseGpu use(part.gpu());
    const auto read = [&](const std::byte* device, int64_t bytes) {
      const AllocationGate gate;
      copy.resize(size_t(bytes));
      CUDA_CHECK(cudaMemcpy(copy.data(), device, size_t(bytes), cudaMemcpyDefault));
      return copy.data();
    };
    check_cache_rows(
        part.plan(), part.graph(),
        [&](uint32_t id) { return *reinterpret_cast<const int32_t*>(read(inputs[part.port_of(id)], sizeof(int32_t))); },
        [&](const Plan::Cache& cache, int64_t offset, int64_t bytes) {
          const Plan::Storage& storage = part.plan().storage[cache.value];
          return read(inputs[storage.port] + storage.offset + offset, bytes);
        });
  }
}

}  // namespace tcim_lite::cuda
