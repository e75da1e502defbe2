// What the faults layer did: a line in the log, and an entry in the list that tests read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tcim_lite::layers {

struct FaultRule;

struct FiredFault {
  uint64_t rule;      // its number in the file, from 1
  std::string place;  // "rules.toml:12"
  std::string kind;
  std::string call;
  int device;
  std::string text;  // what happened, in a sentence
};

// The first time that a rule that slows a device fires is logged, and every time of the others.
void note_fired(const FaultRule& rule, int device, const std::string& text);

// What happened since the last call of this. At most 100 of each rule are kept.
std::vector<FiredFault> take_fired_faults();

}  // namespace tcim_lite::layers
