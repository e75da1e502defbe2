// Which values of a plan lie in blocks of channels (conv_args.h) and not plane by plane: those that convolutions and
// pools write, and nothing but convolutions and pools reads. Only the steps of this backend see it. In blocks a value
// is fp32, whatever it is rounded to, and has whole blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/plan/plan.h"

namespace tcim_lite::cpu {

// A convolution of one group: any layout of x, y or residual.
bool takes_blocks(const ConvSpec& conv);
// A convolution channel by channel, and a pool: y is in blocks only if x is.
bool keeps_blocks(const ConvSpec& conv);
bool keeps_blocks(const PoolSpec& pool);

class Layouts {
 public:
  Layouts() = default;  // nothing lies in blocks
  Layouts(const Graph& graph, const Plan& plan);

  bool in_blocks(uint32_t value) const { return value < forms_.size() && forms_[value].bytes > 0; }
  // [value id of the graph]. A result takes the place of its residual: each task reads of that what it writes.
  const std::vector<OwnForm>& forms() const { return forms_; }

 private:
  std::vector<OwnForm> forms_;
};

}  // namespace tcim_lite::cpu
