// libFuzzer target over the files of fault injection: each is read or refused with file and line.
#include <string_view>

#include "base/error.h"
#include "layers/faults/rules.h"

using namespace tcim_lite;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    layers::read_rules(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Argument || !std::string_view(error.what()).starts_with("fuzz:")) __builtin_trap();
  }
  return 0;
}
