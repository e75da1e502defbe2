#include "backends/cpu/layouts.h"

#include <algorithm>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/ops/conv_direct.h"
#include "backends/cpu/ops/windows.h"
#include "base/thread_pool.h"

namespace tcim_lite::cpu {
namespace {

// What may lie in blocks, of one step.
struct Use {
  uint32_t x, y;
  int64_t bytes;  // of y in blocks
  Operand residual;
  bool keeps;  // y is in blocks only if x is
};

int64_t bytes_of(int64_t images, int64_t channels, const Window& window) {
  return images * round_up(channels, kBlock) * window.out_pixels() * 4;
}

std::vector<Use> uses_of(const Plan& plan) {
  std::vector<Use> uses;
  for (const StepSpec& step : plan.steps) {
    if (const auto* conv = std::get_if<ConvSpec>(&step)) {
      if (!takes_blocks(*conv) && !keeps_blocks(*conv)) continue;
      const int64_t bytes = bytes_of(conv->batch, conv->groups * conv->outputs, conv->window);
      uses.push_back({conv->x, conv->y, bytes, conv->residual, keeps_blocks(*conv)});
    } else if (const auto* pool = std::get_if<PoolSpec>(&step)) {
      if (!keeps_blocks(*pool)) continue;
      const int64_t bytes = bytes_of(pool->planes / pool->channels, pool->channels, pool->window);
      uses.push_back({pool->x, pool->y, bytes, {}, true});
    }
  }
  return uses;
}

// Values side by side that may be one in blocks: of one image and of whole blocks, and none of them in two places.
std::vector<const Op*> concats_of(const Graph& graph) {
  std::vector<int64_t> places(graph.values.size());
  std::vector<const Op*> concats;
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::Concat) continue;
    for (const uint32_t id : op.inputs) ++places[id];
    const Shape& shape = graph.values[op.outputs[0]].shape;
    if (op.attribute("axis", int64_t{0}) == 1 && shape.size() > 2 && shape[0] == 1) concats.push_back(&op);
  }
  std::erase_if(concats, [&](const Op* op) {
    return std::any_of(op->inputs.begin(), op->inputs.end(),
                       [&](uint32_t id) { return places[id] > 1 || graph.values[id].shape[1] % kBlock != 0; });
  });
  return concats;
}

}  // namespace

bool takes_blocks(const ConvSpec& conv) {
  const Window& window = conv.window;
  if (conv.quantized() || conv.groups != 1 || conv.inputs() < kFewChannels || conv.outputs < kFewChannels) return false;
  if (window.out_pixels() < kPackedConvPixels || window.w.out < kLeastRow) return false;
  if (leaves_out_padding(conv)) return true;
  if (!PaddedRows::is_reasonable(window, kMostPaddedFloats)) return false;
  return PaddedRows(window, 0).floats(window.h.out) <= kMostPaddedFloats / round_up(conv.channels, kBlock);
}

bool keeps_blocks(const ConvSpec& conv) {
  return conv.format == WeightFormat::Dense && conv.channels == 1 && conv.outputs == 1 && conv.groups >= kFewChannels &&
         conv.window.h.upsample == 1 && conv.window.w.upsample == 1 && conv.window.taps() <= kSlabTerms;
}

bool keeps_blocks(const PoolSpec& pool) {
  return !pool.mean && pool.channels >= kFewChannels && pool.window.h.upsample == 1 && pool.window.w.upsample == 1;
}

bool joins(const ConvSpec& wide, const ConvSpec& deep) {
  if (!takes_blocks(wide) || !is_identity(wide.window) || wide.residual.given()) return false;
  if (!keeps_blocks(deep) || deep.residual.given()) return false;
  const JoinedRows rows(deep.window, kSlab / 2);
  if (rows.between < std::max(rows.reach, kLeastPartsOfOverlap * rows.again)) return false;
  // Rows are never cut: a wide plane of few rows and channels keeps few members busy.
  const int64_t tasks = parts_of(deep.groups, kSlab / 2) * rows.most_parts;
  return tasks >= kLeastTasksOfMember * ThreadPool::instance().size();
}

Layouts::Layouts(const Graph& graph, const Plan& plan) : forms_(graph.values.size()) {
  const std::vector<Use> uses = uses_of(plan);
  const std::vector<const Op*> concats = concats_of(graph);
  std::vector<int64_t> all_readers(graph.values.size());
  for (const Op& op : graph.ops) {
    for (const uint32_t id : op.inputs) ++all_readers[id];
  }
  std::vector<int64_t> readers = all_readers;
  const auto reads = [&](uint32_t id) {
    if (id < readers.size()) --readers[id];
  };
  for (const Use& use : uses) {
    reads(use.x);
    if (use.residual.given() && !use.residual.weight) reads(use.residual.value);
  }
  for (const Op* op : concats) {
    for (const uint32_t id : op->inputs) reads(id);
  }
  // What nothing else reads, views of it included.
  const auto may_lie_in_blocks = [&](uint32_t id, int64_t bytes) {
    if (id < readers.size() && readers[id] == 0 && plan.storage[id].place != Plan::Place::Output)
      forms_[id].bytes = bytes;
  };
  for (const Use& use : uses) may_lie_in_blocks(use.y, use.bytes);
  for (const Op* op : concats) {
    const Shape& shape = graph.values[op->outputs[0]].shape;
    may_lie_in_blocks(op->outputs[0], num_elements(shape) * 4);
  }
  bool changes = false;
  const auto lies_in_planes = [&](uint32_t id) {
    changes = changes || in_blocks(id);
    if (in_blocks(id)) forms_[id].bytes = 0;
  };
  do {
    changes = false;
    for (const Use& use : uses) {
      const bool plain_residual = use.residual.given() && (use.residual.weight || !in_blocks(use.residual.value));
      if (plain_residual || (use.keeps && !in_blocks(use.x))) lies_in_planes(use.y);
      if (plain_residual && use.keeps) lies_in_planes(use.x);
      const bool adds = use.residual.given() && !use.residual.weight;
      if (adds && use.keeps && !in_blocks(use.x)) lies_in_planes(use.residual.value);
    }
    for (const Op* op : concats) {
      std::vector<uint32_t> all = op->inputs;
      all.push_back(op->outputs[0]);
      if (std::all_of(all.begin(), all.end(), [&](uint32_t id) { return in_blocks(id); })) continue;
      for (const uint32_t id : all) lies_in_planes(id);
    }
  } while (changes);
  // The last first, as a part may have parts itself: all lie in the outermost.
  std::for_each(concats.rbegin(), concats.rend(), [&](const Op* op) {
    const uint32_t whole = op->outputs[0];
    if (!in_blocks(whole)) return;
    OwnForm& form = forms_[whole];
    if (form.within == kNoValue) form.within = whole;  // nothing takes its place, as parts of it may be read later
    int64_t offset = form.offset;
    for (const uint32_t id : op->inputs) {
      forms_[id].within = form.within;
      forms_[id].offset = offset;
      offset += forms_[id].bytes;
    }
  });
  for (const Use& use : uses) {
    if (in_blocks(use.y) && use.residual.given() && use.residual.value != use.x &&
        forms_[use.residual.value].within == kNoValue)
      forms_[use.y].over = use.residual.value;
  }
  join(plan, all_readers);
}

void Layouts::join(const Plan& plan, const std::vector<int64_t>& readers) {
  const ConvSpec* before = nullptr;
  for (const StepSpec& step : plan.steps) {
    const auto* conv = std::get_if<ConvSpec>(&step);
    const bool follows = conv != nullptr && before != nullptr && conv->x == before->y && in_blocks(conv->x);
    if (follows && readers[conv->x] == 1 && conv->y < forms_.size() && joins(*before, *conv) &&
        (in_blocks(before->x) || !kernels().packs_pixels)) {
      joined_.emplace(conv->x, *before);
      forms_[conv->x].bytes = kBlock * 4;  // nothing is stored there
      forms_[conv->y].with = before->x;
    }
    before = conv;
  }
}

}  // namespace tcim_lite::cpu
