#include "backends/cpu/ops/linear_attention.h"

#include <algorithm>
#include <cstring>

namespace tcim_lite::cpu {
namespace {

// Of the first token of a slot.
std::byte* slot_of(const RunContext& context, const Rows& x, int64_t slot, Elem elem) {
  return context.at(x.value) + slot * x.slot_rows * x.stride * elem_bytes(elem);
}

}  // namespace

// Channels are shared out, not tokens: the state lies channel by channel.
void CausalConvStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), channels = x.cols, tasks = (channels + kConvChannels - 1) / kConvChannels;
  const int64_t tokens = slots() == 1 ? context.rows_of(x) : x.slot_rows;
  const int64_t live = current == kNoValue ? x.slot_rows : context.length(current);
  const auto transpose = context.kernels.transpose[size == 2 ? 0 : 1];
  context.pool.parallel_for(slots() * tasks, [&](int64_t index, int member) {
    const int64_t slot = index / tasks, channel = index % tasks * kConvChannels;
    const int64_t count = std::min(kConvChannels, channels - channel), row_bytes = count * size;
    const int64_t state_offset = (slot * channels + channel) * columns * size;
    std::byte *past = context.member(member), *next = past + columns * row_bytes;  // [columns, count]
    const std::byte* from = slot_of(context, x, slot, elem) + channel * size;
    transpose({context.at(state) + state_offset, past, count, columns, columns, count});
    context.kernels.causal_conv[elem]({past, from, weight + channel, bias == nullptr ? nullptr : bias + channel,
                                       slot_of(context, y, slot, elem) + channel * size, columns + 1 - taps, tokens,
                                       count, taps, columns, x.stride, channels, y.stride, silu});
    for (size_t n = 0; n < new_states.size(); ++n) {
      const int64_t seen = new_states.size() == 1 ? live : std::min(live, int64_t(n) + 1);
      for (int64_t i = 0; i < columns; ++i) {
        const int64_t column = seen + i;
        const std::byte* row =
            column < columns ? past + column * row_bytes : from + (column - columns) * x.stride * size;
        std::memcpy(next + i * row_bytes, row, size_t(row_bytes));
      }
      transpose({next, context.at(new_states[n]) + state_offset, columns, count, count, columns});
    }
  });
}

void DeltaRuleStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), state_bytes = keys * values * size;
  const int64_t tokens = slots() == 1 ? context.rows_of(v) : v.slot_rows;
  context.pool.parallel_for(slots() * heads, [&](int64_t index, int member) {
    const int64_t slot = index / heads, head = index % heads;
    int64_t first = 0;  // token
    const auto at = [&](const Rows& rows, int64_t elements) {
      return slot_of(context, rows, slot, elem) + (first * rows.stride + elements) * size;
    };
    DeltaRuleArgs args{};
    const auto point = [&] {
      args.q = at(q, head / (heads / q_heads) * keys);
      args.k = at(k, head / (heads / k_heads) * keys);
      args.v = at(v, head * values);
      args.y = at(y, head * values);
      if (has_decay) {
        args.decays = decays();
        args.decay = at(decay, head * args.decays);
      }
      if (has_beta) args.beta = at(beta, head);
      if (mask != kNoValue) args.mask = context.at(mask) + (slot * v.slot_rows + first) * size;
    };
    args.state = context.at(state) + index * state_bytes;
    args.scratch = reinterpret_cast<float*>(context.member(member));
    args.keys = keys;
    args.values = values;
    args.q_stride = q.stride;
    args.k_stride = k.stride;
    args.v_stride = v.stride;
    args.decay_stride = decay.stride;
    args.beta_stride = beta.stride;
    args.y_stride = y.stride;
    args.gates = rate != nullptr;
    if (args.gates) {
      args.rate = rate[head];
      args.bias = bias[head];
    }
    args.steps = skip != nullptr;
    if (args.steps) args.skip = skip[head];
    args.scale = scale;
    const int64_t each = new_states.size() == 1 ? tokens : 1;  // tokens of a state
    for (uint32_t id : new_states) {
      args.new_state = context.at(id) + index * state_bytes;
      args.tokens = std::min(each, tokens - first);
      if (args.tokens > 0) {
        point();
        context.kernels.delta_rule[elem](args);
        first += args.tokens;
      } else if (args.new_state != args.state) {
        std::memcpy(args.new_state, args.state, size_t(state_bytes));
      }
      args.state = args.new_state;
    }
  });
}

template <>
void PlainStep<GateMulSpec>::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem);
  const auto row_of = [&](const Rows& rows, int64_t row) { return context.at(rows.value) + row * rows.stride * size; };
  for_rows(context, context.rows_of(y), [&](int64_t begin, int64_t end, int) {
    context.kernels.gate_mul[elem]({row_of(x, begin), row_of(gate, begin), row_of(y, begin), end - begin, y.cols,
                                    x.stride, gate.stride, y.stride, function, each()});
  });
}

}  // namespace tcim_lite::cpu
