#include "backends/cpu/layouts.h"

#include <algorithm>

#include "backends/cpu/ops/padded.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kMostPadded = 1 << 24;                      // of planes with their padding
constexpr int64_t kLanesOfInputs = 16, kLanesOfOutputs = 16;  // fewer leave lanes empty
constexpr int64_t kPixelsOfBlocks = 32, kRowOfBlocks = 4;     // fewer: tiles are too small

// What may lie in blocks, of one step.
struct Use {
  uint32_t x = kNoValue, y = kNoValue;
  Operand residual;
  bool keeps = false;  // y is in blocks only if x is
};

std::vector<Use> uses_of(const Plan& plan) {
  std::vector<Use> uses;
  for (const StepSpec& step : plan.steps) {
    if (const auto* conv = std::get_if<ConvSpec>(&step)) {
      if (takes_blocks(*conv) || keeps_blocks(*conv))
        uses.push_back({conv->x, conv->y, conv->residual, keeps_blocks(*conv)});
    } else if (const auto* pool = std::get_if<PoolSpec>(&step)) {
      if (keeps_blocks(*pool)) uses.push_back({pool->x, pool->y, {}, true});
    }
  }
  return uses;
}

}  // namespace

bool takes_blocks(const ConvSpec& conv) {
  const Window& window = conv.window;
  if (conv.quantized() || conv.groups != 1 || conv.inputs() < kLanesOfInputs || conv.outputs < kLanesOfOutputs)
    return false;
  if (window.out_pixels() < kPixelsOfBlocks || window.w.out < kRowOfBlocks) return false;
  if (!PaddedRows::is_reasonable(window, kMostPadded)) return false;
  const int64_t channels = (conv.channels + kBlock - 1) / kBlock * kBlock;
  return PaddedRows(window, 0).floats(window.h.out) <= kMostPadded / channels;
}

bool keeps_blocks(const ConvSpec& conv) {
  return conv.format == WeightFormat::Dense && conv.channels == 1 && conv.outputs == 1 &&
         conv.groups >= kLanesOfInputs && conv.window.h.upsample == 1 && conv.window.w.upsample == 1 &&
         conv.window.taps() <= kSlabTerms;
}

bool keeps_blocks(const PoolSpec& pool) {
  return !pool.mean && pool.channels >= kLanesOfInputs && pool.window.h.upsample == 1 && pool.window.w.upsample == 1;
}

Layouts::Layouts(const Graph& graph, const Plan& plan) : in_blocks_(graph.values.size()) {
  const std::vector<Use> uses = uses_of(plan);
  std::vector<int64_t> readers(graph.values.size());
  for (const Op& op : graph.ops) {
    for (const uint32_t id : op.inputs) ++readers[id];
  }
  const auto reads = [&](uint32_t id) {
    if (id < readers.size()) --readers[id];
  };
  for (const Use& use : uses) {
    reads(use.x);
    if (use.residual.given() && !use.residual.weight) reads(use.residual.value);
  }
  // What nothing else reads, views of it included.
  for (const Use& use : uses) {
    if (use.y < readers.size() && readers[use.y] == 0 && plan.storage[use.y].place == Plan::Place::Arena)
      in_blocks_[use.y] = true;
  }
  bool changes = false;
  const auto lies_in_planes = [&](uint32_t id) {
    changes = changes || in_blocks(id);
    if (in_blocks(id)) in_blocks_[id] = false;
  };
  do {
    changes = false;
    for (const Use& use : uses) {
      const bool plain_residual = use.residual.given() && (use.residual.weight || !in_blocks(use.residual.value));
      if (plain_residual || (use.keeps && !in_blocks(use.x))) lies_in_planes(use.y);
      if (plain_residual && use.keeps) lies_in_planes(use.x);
    }
  } while (changes);
}

}  // namespace tcim_lite::cpu
