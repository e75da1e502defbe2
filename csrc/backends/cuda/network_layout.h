// Which values a network's steps hold with their channels last, [N, H, W, C] in place of [N, C, H, W]. A pixel's
// channels then lie together, so convolutions read and write 16 bytes at a time.
#pragma once

#include <vector>

#include "graph/plan/plan.h"

namespace tcim_lite::cuda {

// By value id of the plan. Only float16 values between convolutions, pools, functions of one element and sums that
// nothing else sees: graph inputs, outputs, taps and what views are made of stay as they are declared.
std::vector<bool> values_with_channels_last(const Graph& graph, const Plan& plan);

// How a convolution is computed.
enum class ConvKind {
  Direct,   // a thread for each element
  Product,  // as a product of matrices
  Linear,   // as a Linear of packed weights
};
ConvKind kind_of(const ConvSpec& spec);
// Whether the one pixel of a plane is made from all of the plane.
bool reduces_planes(const PoolSpec& spec);

}  // namespace tcim_lite::cuda
