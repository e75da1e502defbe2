// The figures that the chip's time, power and temperature are modelled with (docs/clock.md).
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tcim_lite {

// Rates are of the whole chip at its highest clock.
struct ChipProfile {
  std::string name;
  int cores = 0;
  int clock_mhz = 0;
  // GB of 10^9 bytes per second, and 10^12 operations per second.
  double read_gb = 0, to_device_gb = 0, to_host_gb = 0, exchange_gb = 0;
  double linear_int8_tops = 0, attention_tops = 0, conv_int8_tops = 0, conv_float_tops = 0;
  double op_us = 0;         // of every op beside its work
  double exchange_us = 0;   // of every exchange between devices beside its bytes
  double set_input_us = 0;  // of the host
  double stage_ms = 0;      // from one stage of a pipeline to the next, in the vendor's programs
  double idle_watts = 0, busy_watts = 0;
  double ambient_c = 0, c_per_watt = 0;

  // Linear layers in floating point are slower than in int8 by what convolutions are.
  double linear_float_tops() const { return linear_int8_tops * conv_float_tops / conv_int8_tops; }
};

// Throws Error(Argument) naming the line, or the key that is missing, unknown, not positive or no number.
ChipProfile parse_chip_profile(std::string_view text, const std::string& file);

// Of the file TCIM_LITE_CLOCK_PROFILE, else csrc/runtime/m50.toml as it was when this was built. Read once a process.
const ChipProfile& chip_profile();

}  // namespace tcim_lite
