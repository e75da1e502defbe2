#include "backends/cpu/ops/linear_attention.h"

#include <cstring>

namespace tcim_lite::cpu {
namespace {

// Of the first token of a slot.
std::byte* slot_of(const RunContext& context, const Rows& x, int64_t slot, Elem elem) {
  return context.at(x.value) + slot * x.slot_rows * x.stride * elem_bytes(elem);
}

}  // namespace

void CausalConvStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), channels = x.cols, state_bytes = channels * columns * size;
  const int64_t tokens = slots() == 1 ? context.rows_of(x) : x.slot_rows;
  const auto transpose = context.kernels.transpose[size == 2 ? 0 : 1];
  std::byte *past = context.shared_scratch, *next = past + state_bytes;  // [columns, channels]
  for (int64_t slot = 0; slot < slots(); ++slot) {
    transpose({context.at(state) + slot * state_bytes, past, channels, columns, columns, channels});
    const std::byte* from = slot_of(context, x, slot, elem);
    std::byte* to = slot_of(context, y, slot, elem);
    for_rows(context, tokens, [&](int64_t begin, int64_t end, int) {
      context.kernels.causal_conv[elem]({past, from, weight, bias, to + begin * y.stride * size,
                                         begin + columns + 1 - taps, end - begin, channels, taps, columns, x.stride,
                                         y.stride, silu});
    });
    const int64_t first = current == kNoValue ? x.slot_rows : context.length(current);
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t column = first + i;
      const std::byte* row =
          column < columns ? past + column * channels * size : from + (column - columns) * x.stride * size;
      std::memcpy(next + i * channels * size, row, size_t(channels * size));
    }
    transpose({next, context.at(new_state) + slot * state_bytes, columns, channels, channels, columns});
  }
}

void DeltaRuleStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), state_bytes = keys * values * size;
  const int64_t tokens = slots() == 1 ? context.rows_of(v) : v.slot_rows;
  context.pool.parallel_for(slots() * heads, [&](int64_t index, int member) {
    const int64_t slot = index / heads, head = index % heads;
    const auto at = [&](const Rows& rows, int64_t elements) {
      return slot_of(context, rows, slot, elem) + elements * size;
    };
    DeltaRuleArgs args{};
    args.q = at(q, head / (heads / q_heads) * keys);
    args.k = at(k, head / (heads / k_heads) * keys);
    args.v = at(v, head * values);
    args.y = at(y, head * values);
    if (has_decay) {
      args.decays = decays();
      args.decay = at(decay, head * args.decays);
    }
    if (has_beta) args.beta = at(beta, head);
    if (mask != kNoValue) args.mask = context.at(mask) + slot * v.slot_rows * size;
    args.state = context.at(state) + index * state_bytes;
    args.new_state = context.at(new_state) + index * state_bytes;
    args.scratch = reinterpret_cast<float*>(context.member(member));
    args.tokens = tokens;
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
    args.scale = scale;
    context.kernels.delta_rule[elem](args);
  });
}

void GateMulStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem);
  const auto row_of = [&](const Rows& rows, int64_t row) { return context.at(rows.value) + row * rows.stride * size; };
  for_rows(context, context.rows_of(y), [&](int64_t begin, int64_t end, int) {
    context.kernels.gate_mul[elem]({row_of(x, begin), row_of(gate, begin), row_of(y, begin), end - begin, y.cols,
                                    x.stride, gate.stride, y.stride, silu, gate.cols != y.cols});
  });
}

}  // namespace tcim_lite::cpu
