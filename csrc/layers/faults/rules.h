// A file of rules (docs/fault-injection.md): which faults happen when.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tcim_lite::layers {

enum class FaultKind {
  DeviceLost,
  Hang,
  OutOfMemory,
  LoadFailure,
  Firmware,
  Slow,
  Throttle,
  BitFlip,
  Reset,
  FlakySync,
};

// What a rule calls a round of a queued run, on whatever thread the stream runs it: no call of the API.
inline constexpr std::string_view kExecute = "execute";

enum class BitIn { Input, Output, Weight };

struct FaultRule {
  size_t number = 0;  // from 1, in the order of the file
  std::string place;  // "rules.toml:12"
  std::string_view kind_name;
  FaultKind kind = FaultKind::DeviceLost;

  // When: of the calls of this name (runtime/api_call.h) or kExecute, of this model on this device, ...
  std::string_view call;
  std::string model;          // is in the path; empty: any
  std::optional<int> device;  // empty: any
  // ... after so many seconds and before so many (of the steady clock, since the layer began), ...
  double after_s = 0, before_s = 0;  // 0: no end
  // ... the nth and those after it, each with this probability, until it has happened so many times.
  uint64_t nth = 1;
  double probability = 1;
  uint64_t seed = 0;
  uint64_t times = 1;  // 0: no end

  // What, by kind.
  double timeout_s = 1;            // hang: until ret:110
  double delay_s = 0, factor = 1;  // slow
  int clock_mhz = 0;               // throttle
  double lasts_s = 0;              // throttle; 0: until a reset
  BitIn bit_in = BitIn::Output;    // bit_flip
  std::string tensor;
  std::optional<uint64_t> byte;  // bit_flip; empty: drawn from the seed
  std::optional<int> bit;
  std::string version;  // firmware
};

// `file` names it in messages. Throws Error(Argument) naming file and line, what was got and what was expected.
std::vector<FaultRule> read_rules(std::string_view text, const std::string& file);

// A number that depends on (seed, count) alone: the same in every run, thread and place.
uint64_t draw(uint64_t seed, uint64_t count);

}  // namespace tcim_lite::layers
