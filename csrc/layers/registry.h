// The existing layers, and which of them listen: those that TCIM_LITE_LAYERS and TCIM_LITE_STRICT name, from the first
// call of the process on, and those enabled in code.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/observer.h"

namespace tcim_lite::layers {

using Options = std::map<std::string, std::string>;

// An option, else the environment variable, else `otherwise`.
std::string setting(const Options& options, const char* key, const char* variable, const char* otherwise);
// Throws Error(Argument) for a key that is not among `known`.
void check_options(std::string_view layer, const Options& options, const std::vector<std::string_view>& known);

std::vector<std::string> known();
// In the order in which they are told of calls.
std::vector<std::string> active();

// Enabling again replaces the layer and its options. Throws Error(Argument) for an unknown name, listing the known
// ones, and for options that the layer does not have.
void enable(const std::string& name, const Options& options);
void disable(const std::string& name);

}  // namespace tcim_lite::layers
