#include "backends/cuda/step_timer.h"

#include <algorithm>
#include <utility>

#include "backends/cuda/kernels/kernels.h"

namespace tcim_lite::cuda {

void StepTimer::begin(cudaStream_t stream) {
  recorded_ = 0;
  names_.clear();
  record(stream);
}

void StepTimer::mark(cudaStream_t stream, StepName name) {
  names_.push_back(std::move(name));
  record(stream);
}

void StepTimer::record(cudaStream_t stream) {
  if (recorded_ == events_.size()) {
    cudaEvent_t event = nullptr;
    CUDA_CHECK(cudaEventCreate(&event));
    events_.emplace_back(event);
  }
  break_overlap();
  CUDA_CHECK(cudaEventRecordWithFlags(events_[recorded_++].get(), stream, cudaEventRecordExternal));
}

void StepTimer::add(std::vector<StepTime>& times) const {
  for (size_t step = 0; step < names_.size(); ++step) {
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, events_[step].get(), events_[step + 1].get()));
    const StepName& name = names_[step];
    auto found = std::find_if(times.begin(), times.end(), [&](const StepTime& time) { return time.name == name; });
    if (found == times.end()) found = times.insert(times.end(), {name, 0.0});
    found->seconds += double(milliseconds) * 1e-3;
  }
}

}  // namespace tcim_lite::cuda
