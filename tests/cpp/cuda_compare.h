// Runs a random graph on the CPU and on a GPU and compares what comes out.
//
// Bounds (docs/cuda.md). Where the activations of a Linear are the same on both sides, only the order of fp32 sums
// differs: a result is within one fp16 step of the CPU's, or within 2^-17 of the largest where sums cancel. Where an
// earlier rounding may differ, the whole is compared: |difference| <= limit * |result|, in the Euclidean norm.
#pragma once

#include <algorithm>
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "check.h"
#include "cuda_side.h"
#include "transformer_layer.h"

namespace tcim_lite::test {

// Whether there is a GPU to compare; without one it says so, and a program returns kSkipped.
constexpr int kSkipped = 77;
inline bool has_gpu() {
  try {
    cuda_backend();
    return true;
  } catch (const Error& error) {
    std::cout << "skipped: " << error.what() << "\n";
    return false;
  }
}

struct Limit {
  double steps;  // fp16 steps of each element; 0: only the norm is compared
  double norm;
  double rms = 0;  // of the root mean square of all, added to what an element may be off
};
constexpr Limit kSums{1.01, 1e-3};
constexpr WeightFormat kHalfFormats[] = {WeightFormat::LinearW4, WeightFormat::LinearW8, WeightFormat::LinearF16};
// Of dense tensors: one op on equal inputs; and several roundings, any of which may fall the other way.
constexpr DType kDtypes[] = {DType::Float16, DType::Float32};
inline Limit of_one(DType dtype) { return dtype == DType::Float16 ? kSums : Limit{0, 2e-6}; }
inline Limit of_several(DType dtype) { return dtype == DType::Float16 ? Limit{0, 1e-3} : Limit{0, 2e-6}; }
// A value that rounds the other way moves what is quantised after it by one code of 127 at most.
inline Limit roundings(WeightFormat format) {
  return {0, is_quantized(format) ? 4e-2 : format == WeightFormat::LinearF16 ? 4e-3 : 1e-5};
}

inline void compare(const std::string& what, const std::vector<float>& mine, const std::vector<float>& reference,
                    Limit limit) {
  double difference = 0, size = 0, largest = 0;
  size_t wrong = 0;
  for (float each : reference) largest = std::max(largest, double(std::fabs(each)));
  for (float each : reference) size += double(each) * each;
  const double rms = std::sqrt(size / double(std::max<size_t>(reference.size(), 1)));
  for (size_t i = 0; i < mine.size(); ++i) {
    const double off = std::fabs(double(mine[i]) - reference[i]);
    difference += off * off;
    const double step = std::max(std::ldexp(std::fabs(double(reference[i])), -10), std::ldexp(1.0, -24));
    const double allowed = limit.steps * step + std::ldexp(largest, -17) + limit.rms * rms;
    wrong += limit.steps > 0 && !(off <= allowed);
  }
  const double norm = std::sqrt(difference / std::max(size, 1e-30));
  if (wrong != 0 || !(norm <= limit.norm)) {
    report_failure(__FILE__, __LINE__, concat(what, ": ", wrong, " of ", mine.size(), " elements off, norm ", norm));
  } else if (limit.steps == 0) {
    std::cout << what << ": norm " << norm << "\n";
  }
}

inline void check(const std::string& what, GraphMaker& maker, const std::vector<uint32_t>& outputs, Limit limit,
                  const std::vector<Length>& lengths = {}, int rounds = 1, int32_t advance = 0) {
  Graph& graph = maker.graph();
  graph.outputs = outputs;
  try {
    validate(graph);
    for (const Placing placing : {Placing::NearHost, Placing::NearDevice}) {
      Side cpu(cpu_backend(), maker, graph, 5, placing), gpu(cuda_backend(), maker, graph, 5, placing);
      for (int round = 0; round < rounds; ++round) {
        cpu.refill(uint32_t(100 + round));
        gpu.refill(uint32_t(100 + round));
        for (size_t i = 0; i < lengths.size(); ++i) {
          const int32_t value = lengths[i].value + (i % 2 == 0 ? round * advance : 0);
          cpu.set_length(lengths[i].id, value);
          gpu.set_length(lengths[i].id, value);
        }
        cpu.run();
        gpu.run();
        for (size_t port = 0; port < outputs.size(); ++port)
          compare(concat(what, " output ", port, " round ", round), gpu.output(port), cpu.output(port), limit);
        for (size_t port = 0; port < graph.inputs.size(); ++port) {
          if (graph.values[graph.inputs[port]].kind == ValueKind::State)
            compare(concat(what, " state ", port), gpu.state(port), cpu.state(port), limit);
        }
      }
    }
  } catch (const Error& error) {
    report_failure(__FILE__, __LINE__, what + ": " + error.what());
  }
}

}  // namespace tcim_lite::test
