// libFuzzer target over the reader and, for the graphs it accepts, the plan builder.
#include <algorithm>
#include <span>
#include <vector>

#include "backends/cpu/plan_builder.h"
#include "base/error.h"
#include "hmm/reader.h"

using namespace tcim_lite;

namespace {

void plan(const hmm::File& file) {
  uint64_t largest = 1;
  for (const hmm::WeightEntry& weight : file.weights) largest = std::max(largest, weight.bytes);
  if (largest > 1 << 20) return;
  const std::vector<std::byte> zeros(largest);
  std::vector<WeightBytes> weights;
  for (const hmm::WeightEntry& weight : file.weights) weights.emplace_back(zeros.data(), weight.bytes);
  try {
    for (const Graph& graph : file.parts) {
      for (const bool float_math : {false, true}) cpu::build_plan(graph, weights, float_math);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Unsupported) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    plan(hmm::parse(std::as_bytes(std::span(data, size)), "fuzz"));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Format) __builtin_trap();
  }
  return 0;
}
