#include "runtime/device_time.h"

#include <algorithm>

#include "hmm/graph_section.h"

namespace tcim_lite {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6;

double rate_of(const ChipProfile& profile, const OpCost& op) {
  switch (op.work) {
    case WorkKind::Linear:
      return op.quantized ? profile.linear_int8_tops : profile.linear_float_tops();
    case WorkKind::Conv:
      return op.quantized ? profile.conv_int8_tops : profile.conv_float_tops;
    case WorkKind::Attention:
    case WorkKind::Product:
      return profile.attention_tops;
    case WorkKind::Exchange:
    case WorkKind::Other:
      break;
  }
  return profile.linear_float_tops();
}

}  // namespace

ChipState full_speed(const ChipProfile& profile) { return {profile.cores, profile.clock_mhz}; }

double op_seconds(const ChipProfile& profile, const ChipState& state, const OpCost& op, const ValidLength& valid) {
  if (op.is_view) return 0;
  if (op.work == WorkKind::Exchange)
    return double(op.exchanged_bytes) / (profile.exchange_gb * kGiga) + profile.exchange_us * kMicro;
  uint64_t bytes = op.weight_bytes, operations = op.operations;
  for (size_t slot = 0; slot < op.caches.size(); ++slot) {
    const int64_t before = valid(op.caches[slot].valid);
    bytes += op.caches[slot].row_bytes * uint64_t(op.rows_seen(slot, before));
    operations += op.operations_per_pair * op.pairs(slot, before);
  }
  const double speed = double(state.cores) / profile.cores * state.clock_mhz / profile.clock_mhz;
  const double reading = double(bytes) / (profile.read_gb * kGiga);
  const double computing = double(operations) / (rate_of(profile, op) * kTera * speed);
  return std::max(reading, computing) + profile.op_us * kMicro;
}

double run_seconds(const ChipProfile& profile, const ChipState& state, std::span<const GraphCost> parts,
                   const ValidLength& valid) {
  double slowest = 0;
  for (const GraphCost& part : parts) {
    double seconds = 0;
    for (const OpCost& op : part.ops) seconds += op_seconds(profile, state, op, valid);
    slowest = std::max(slowest, seconds);
  }
  return slowest;
}

GraphCost cost_of_section(std::span<const std::byte> section) {
  const Graph graph = hmm::decode_graph(section, "graph section");
  validate(graph);
  return cost_of(graph);
}

double power_watts(const ChipProfile& profile, double utilization) {
  return profile.idle_watts + (profile.busy_watts - profile.idle_watts) * utilization;
}

double temperature_c(const ChipProfile& profile, double utilization) {
  return profile.ambient_c + profile.c_per_watt * power_watts(profile, utilization);
}

}  // namespace tcim_lite
