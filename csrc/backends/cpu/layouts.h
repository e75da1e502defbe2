// Which values of a plan lie in blocks of channels (conv_args.h) and not plane by plane: those that convolutions and
// pools write, and nothing but convolutions and pools reads, and a Concat of such. Only the steps of this backend see
// it. In blocks a value is fp32, whatever it is rounded to, and has whole blocks.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "graph/plan/plan.h"

namespace tcim_lite::cpu {

// A convolution of one group: any layout of x, y or residual.
bool takes_blocks(const ConvSpec& conv);
// A convolution channel by channel, and a pool: y is in blocks only if x is.
bool keeps_blocks(const ConvSpec& conv);
bool keeps_blocks(const PoolSpec& pool);
// A convolution of one pixel and the one channel by channel behind it, which can be one step.
bool joins(const ConvSpec& wide, const ConvSpec& deep);

class Layouts {
 public:
  Layouts() = default;  // nothing lies in blocks
  Layouts(const Graph& graph, const Plan& plan);

  bool in_blocks(uint32_t value) const { return value < forms_.size() && forms_[value].bytes > 0; }
  // The convolution that makes the value, some rows at a time, within the step that reads it; or null.
  const ConvSpec* joined(uint32_t value) const {
    const auto found = joined_.find(value);
    return found == joined_.end() ? nullptr : &found->second;
  }
  // [value id of the graph]. A result takes the place of its residual: each task reads of that what it writes.
  const std::vector<OwnForm>& forms() const { return forms_; }

 private:
  void join(const Plan& plan, const std::vector<int64_t>& readers);

  std::vector<OwnForm> forms_;
  std::map<uint32_t, ConvSpec> joined_;  // by what it makes
};

}  // namespace tcim_lite::cpu
