#pragma once

#include <stdexcept>

namespace probe {

class __attribute__((visibility("default"))) Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~Error() override;
};

// Throws Error, whose text is "core 1.5 x".
__attribute__((visibility("default"))) void fail(const char* text);

// How many exceptions this library's runtime counts as thrown and not caught.
__attribute__((visibility("default"))) int uncaught() noexcept;

}  // namespace probe
