// The ops that stand alone when nothing absorbs them: each row by itself.
#pragma once

#include "backends/cpu/plan.h"

namespace tcim_lite::cpu {

struct RmsNormStep final : Step {
  Elem elem;
  Rows x, y;  // y dense; with groups > 1 each row is `groups` vectors of cols / groups
  int64_t groups = 1;
  const float* weight = nullptr;  // [cols / groups]
  float epsilon = 0;
  void run(const RunContext& context) const override;
};

struct AddStep final : Step {
  Elem elem;
  Rows a, b, y;
  void run(const RunContext& context) const override;
};

struct SiluMulStep final : Step {
  Elem elem;
  Rows x, y;
  void run(const RunContext& context) const override;
};

// y[0] = x[current - 1].
struct GatherRowStep final : Step {
  Elem elem;
  Rows x, y;
  uint32_t current = 0;
  void run(const RunContext& context) const override;
};

// y = x between element types, for the edges of the graph: graph inputs into fp32 intermediates and back
// (TCIM_LITE_NUMERICS=float), and graph outputs that are views.
struct CopyStep final : Step {
  Elem from, to;
  Rows x, y;
  void run(const RunContext& context) const override;
};

}  // namespace tcim_lite::cpu
