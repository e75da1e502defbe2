// libFuzzer target over profiles of the chip (TCIM_LITE_CLOCK_PROFILE): each is read or refused with its file.
#include <string_view>

#include "base/error.h"
#include "runtime/chip_profile.h"

using namespace tcim_lite;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ChipProfile made = parse_chip_profile(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    if (!(made.read_gb > 0) || made.cores < 1 || made.name.empty()) __builtin_trap();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Argument || !std::string_view(error.what()).starts_with("fuzz:")) __builtin_trap();
  }
  return 0;
}
