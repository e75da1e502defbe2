// NaN and infinity in the live rows of caches. No run looks at all of them: attention notices that something is not
// finite, and only then, after the run, are they looked through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "graph/plan/plan.h"

namespace tcim_lite {

// What an error of check_cache_rows() says of the row.
constexpr const char* kOddCacheRow = ", a row that attention reads";

// Where the host finds `bytes` of a cache from `offset` on, until the next call.
using ReadCache = std::function<const std::byte*(const Plan::Cache& cache, int64_t offset, int64_t bytes)>;

// Throws Error(Argument) for the first NaN or infinity in a row that the run's tokens see below their slot's valid
// length, which `length` reads by value id. What made attention meet one may also be arithmetic: then nothing is
// thrown.
void check_cache_rows(const Plan& plan, const Graph& graph, const std::function<int64_t(uint32_t)>& length,
                      const ReadCache& read);

}  // namespace tcim_lite
