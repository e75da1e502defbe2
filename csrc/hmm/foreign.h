// Recognises foreign files by their first bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tcim_lite::hmm {

// A sentence on what `bytes` look like and what to do; they do not start with a magic of ours.
std::string describe_foreign(std::span<const std::byte> bytes);

}  // namespace tcim_lite::hmm
