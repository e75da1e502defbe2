// How long the chip would take, modelled from what a run reads and computes (docs/clock.md). Never measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "graph/cost.h"
#include "runtime/chip_profile.h"

namespace tcim_lite {

// What differs between devices and moments: operations take longer on fewer cores and at a lower clock, reading does
// not.
struct ChipState {
  int cores = 0;
  int clock_mhz = 0;
};
ChipState full_speed(const ChipProfile& profile);

// Tokens before the run, by the input of the graph that says so; kNoValue: none does.
using ValidLength = std::function<int64_t(uint32_t)>;

// A view takes nothing, any other op the longer of reading and computing, and what every op takes beside that. An
// exchange between devices takes the bytes that a device gets and what every exchange takes.
double op_seconds(const ChipProfile& profile, const ChipState& state, const OpCost& op, const ValidLength& valid);

// Of one run: the slowest device, by rank.
double run_seconds(const ChipProfile& profile, const ChipState& state, std::span<const GraphCost> parts,
                   const ValidLength& valid);

// What a run of the graph costs whose section of a file these bytes are (docs/hmm-format.md section 5). Throws
// Error(Format).
GraphCost cost_of_section(std::span<const std::byte> section);

// Power and temperature of a device that was busy for `utilization` (0 to 1) of the last second.
double power_watts(const ChipProfile& profile, double utilization);
double temperature_c(const ChipProfile& profile, double utilization);

}  // namespace tcim_lite
