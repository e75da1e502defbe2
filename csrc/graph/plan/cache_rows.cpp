#include "graph/plan/cache_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/half.h"

namespace tcim_lite {
namespace {

float element(Elem elem, const std::byte* rows, int64_t index) {
  if (elem == kF32) return reinterpret_cast<const float*>(rows)[index];
  return half_to_float(reinterpret_cast<const uint16_t*>(rows)[index]);
}

[[noreturn]] void refuse_row(const Plan& plan, const Graph& graph, const Plan::Cache& cache, int64_t row, float value,
                             int64_t valid) {
  const char* const kind = std::isnan(value) ? "NaN" : value > 0 ? "infinity" : "-infinity";
  const std::string slot = cache.slots > 1 ? concat(" of slot ", cache.slot) : "";
  fail(ErrorCode::Argument, "run: input '", graph.values[graph.inputs[plan.storage[cache.value].port]].name, "' holds ",
       kind, " in row ", row, slot, kOddCacheRow, ": '", graph.values[cache.valid].name, "' is ", valid,
       ". The outputs of this run mean nothing; rows below that length are as they were. ",
       "Write the row anew, by set_input or by the run that makes it, and run again");
}

}  // namespace

void check_cache_rows(const Plan& plan, const Graph& graph, const std::function<int64_t(uint32_t)>& length,
                      const ReadCache& read) {
  for (const Plan::Cache& cache : plan.caches) {
    const int64_t valid = length(cache.valid);
    const int64_t first = std::max<int64_t>(valid + 1 - cache.window, 0);  // that the run's first token sees
    const int64_t count = (std::min(valid, cache.context) - first) * cache.head_dim;
    const int64_t bytes = elem_bytes(cache.elem);
    for (int64_t head = 0; head < cache.heads && count > 0; ++head) {
      const int64_t offset = (head * cache.context + first) * cache.head_dim;
      const std::byte* rows = read(cache, offset * bytes, count * bytes);
      for (int64_t index = 0; index < count; ++index) {
        const float value = element(cache.elem, rows, index);
        if (!std::isfinite(value)) refuse_row(plan, graph, cache, first + index / cache.head_dim, value, valid);
      }
    }
  }
}

}  // namespace tcim_lite
