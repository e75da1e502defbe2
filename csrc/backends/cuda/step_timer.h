// Times of the steps in a captured graph: an event of the graph before the first step and after each.
#pragma once

#include <cstddef>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/handles.h"

namespace tcim_lite::cuda {

class StepTimer {
 public:
  // The first mark of a recording, which names nothing. All recordings of a part have the same steps, and the events
  // are those of whichever graph ran last.
  void begin(cudaStream_t stream);
  // After a step; the next one begins when this one has ended.
  void mark(cudaStream_t stream, StepName name);
  // After a run, whose stream has been waited for.
  void add(std::vector<StepTime>& times) const;

 private:
  void record(cudaStream_t stream);

  std::vector<Event> events_;
  std::vector<StepName> names_;  // of the time before events 1, 2, ...
  size_t recorded_ = 0;
};

}  // namespace tcim_lite::cuda
