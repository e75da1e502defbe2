// The text that `python -m tcim_lite.hmm` prints, from the C++ reader.
#pragma once

#include <cstddef>
#include <span>
#include <string>

std::string summarize(std::span<const std::byte> bytes, const std::string& label);
