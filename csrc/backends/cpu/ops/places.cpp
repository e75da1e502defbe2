// Gather and Resample: an axis read at the places of a table.
#include <algorithm>
#include <cstring>

#include "backends/cpu/ops/dense_steps.h"
#include "backends/cpu/ops/units.h"
#include "base/error.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kElements = 1 << 13;  // of a task

// Parts of an outer axis times those of the places of each, about kElements in a task: body(o, begin, end).
template <typename Body>
void for_places(const RunContext& context, int64_t outer, int64_t count, int64_t inner, const Body& body) {
  const int64_t some = std::clamp<int64_t>(kElements / inner, 1, count), parts = parts_of(count, some);
  const int64_t grain = std::max<int64_t>(1, kElements / (some * inner));
  const auto task = [&](int64_t index, int) {
    const int64_t begin = index % parts * some;
    body(index / parts, begin, std::min(begin + some, count));
  };
  context.pool.parallel_for(outer * parts, task, grain);
}

template <typename T>
void take(const std::byte* x, const int64_t* places, int64_t count, std::byte* y) {
  const auto* from = reinterpret_cast<const T*>(x);
  auto* to = reinterpret_cast<T*>(y);
  for (int64_t i = 0; i < count; ++i) to[i] = from[places[i]];
}

}  // namespace

void GatherStep::run(const RunContext& context) const {
  const std::byte* source = from.at(context);
  const auto* index = reinterpret_cast<const int32_t*>(at.at(context));
  auto* places = reinterpret_cast<int64_t*>(context.shared_scratch);
  context.pool.parallel_for(parts_of(count, kElements), [&](int64_t part, int) {
    for (int64_t i = part * kElements, end = std::min(i + kElements, count); i < end; ++i)
      places[i] = std::clamp<int64_t>(index[i] < 0 ? index[i] + extent : index[i], 0, extent - 1);
  });
  const int64_t length = inner * bytes;
  for_places(context, outer, count, inner, [&](int64_t o, int64_t begin, int64_t end) {
    const std::byte* x = source + o * extent * length;
    std::byte* to = context.at(y) + (o * count + begin) * length;
    if (length == 2) return take<uint16_t>(x, places + begin, end - begin, to);
    if (length == 4) return take<uint32_t>(x, places + begin, end - begin, to);
    if (length == 8) return take<uint64_t>(x, places + begin, end - begin, to);
    for (int64_t i = begin; i < end; ++i, to += length) std::memcpy(to, x + places[i] * length, size_t(length));
  });
}

ResampleStep::ResampleStep(ResampleSpec spec, const WeightFinder& finder)
    : ResampleSpec(std::move(spec)),
      indices(finder.find<int32_t>(indices_id)),
      weights(finder.find<float>(weights_id)) {
  for (int64_t i = 0; i < count * taps; ++i) {
    if (indices[i] >= 0 && indices[i] < extent) continue;
    fail(ErrorCode::Format, "Resample: index ", indices[i], " is beyond its axis of ", extent,
         "; compile the model again");
  }
}

bool ResampleStep::turns() const { return inner == 1 && outer > 1 && extent <= kMostTurned; }

int64_t ResampleStep::member_bytes() const { return turns() ? (extent + kTurnedRows) * kTurnedRows * 4 : 0; }

void ResampleStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), unit = turns() ? kTurnedRows : 1;
  const int64_t grain = std::max<int64_t>(1, kElements / (unit * count * inner));
  const auto task = [&](int64_t index, int member) {
    const int64_t o = index * unit;
    context.kernels.resample[elem]({context.at(x) + o * extent * inner * size, indices, weights,
                                    context.at(y) + o * count * inner * size, std::min(unit, outer - o), extent, count,
                                    taps, inner, reinterpret_cast<float*>(context.member(member))});
  };
  context.pool.parallel_for(parts_of(outer, unit), task, grain);
}

}  // namespace tcim_lite::cpu
