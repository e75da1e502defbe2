// libFuzzer target over the reader and, for the graphs it accepts, the plan builder.
#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "graph/plan/plan.h"
#include "hmm/reader.h"

using namespace tcim_lite;

namespace {

void plan(const hmm::File& file) {
  try {
    for (const Graph& graph : file.parts) {
      for (const Numerics numerics : {Numerics::AsCompiled, Numerics::HiddenExponent, Numerics::Float})
        build_plan(graph, numerics);
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
