// Included before every seeded source.
#pragma once

#include <cstdlib>
#include <cstring>
#include <optional>
#include <tuple>

// Whether this process runs with the fault.
[[maybe_unused]] static bool seeded(const char* name) {
  static const char* const chosen = std::getenv("TCIM_LITE_SEEDED_FAULT");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}
