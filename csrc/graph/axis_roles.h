// Roles of the inputs that say something of each token: where it is along time, height and width, int32 [T] each, and
// whether linear attention is to take it or it is padding, a float [1, T]. And of the one that says which of several
// heads makes the logits, int32 [1].
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace tcim_lite {

constexpr std::array<std::string_view, 3> kAxisRoles = {"time_position_ids", "height_position_ids",
                                                        "width_position_ids"};

constexpr std::string_view kLinearMaskRole = "linear_mask";

// Of an encoder: a float of any shape that is added to scores.
constexpr std::string_view kMaskRole = "mask";

// Of an input that has all of them, [3, 1, T].
constexpr std::string_view kAxesRole = "axes_position_ids";

constexpr std::string_view kHeadRole = "head_number";

// Of a language model: [1, 1, T, S], for layers with a window and for the others.
inline bool is_attention_mask_role(std::string_view role) {
  return role == "local_attention_mask" || role == "global_attention_mask";
}

inline bool is_axis_role(std::string_view role) {
  return std::find(kAxisRoles.begin(), kAxisRoles.end(), role) != kAxisRoles.end();
}

}  // namespace tcim_lite
