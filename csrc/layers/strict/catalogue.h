// Every finding strict mode can make: the one source of its messages, of `tcim-lite explain` and of docs/strict.md.
#pragma once

#include <span>
#include <string_view>

#include "base/error.h"

namespace tcim_lite::layers {

struct FindingKind {
  std::string_view code;   // stable: never given to another finding
  std::string_view title;  // one sentence
  std::string_view fault;  // whose it is
  std::string_view rule;   // and where it is written
  std::string_view why;    // what it leads to
  // A program that makes the finding, after `import numpy as np` and `import tcim_lite.runtime as rt`, beside the
  // models that docs/strict.md describes. Empty: there is none.
  std::string_view example;
  std::string_view fix;
  // The error of the call without strict mode; Strict: the call succeeds.
  ErrorCode status_code = ErrorCode::Strict;
};

std::span<const FindingKind> catalogue();
// `code` is in the catalogue.
const FindingKind& kind_of(std::string_view code);

}  // namespace tcim_lite::layers
