#include "graph/plan/lengths.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "graph/axis_roles.h"

namespace tcim_lite {

namespace {

void check_live_positions(const PositionRule& rule, const Graph& graph, const IntegerInputs& integers) {
  const int64_t current = rule.current == kNoValue ? rule.tokens : *integers(rule.current, 1);
  const int32_t* const all = integers(rule.positions, rule.axes * rule.tokens);
  const int64_t live = std::min(current, rule.tokens);
  for (int64_t index = 0; index < rule.axes * live; ++index) {
    const int64_t token = index % live;
    const int32_t* const positions = all + index / live * rule.tokens;
    if (positions[token] >= 0 && positions[token] < rule.rows) continue;
    const Value& input = graph.values[rule.positions];
    if (input.role.name == kHeadRole)
      fail(ErrorCode::Argument, "run: '", input.name, "' is ", positions[token], ", expected 0 to ", rule.rows - 1,
           ", the heads that this graph has; nothing was computed");
    fail(ErrorCode::Argument, "run: '", input.name, "' is ", positions[token], " for token ", token, ", expected 0 to ",
         rule.rows - 1,
         ", the positions that this graph has; nothing was computed. Text goes on behind an image at its largest "
         "position + 1");
  }
}

}  // namespace

void check_lengths(const Plan& plan, const Graph& graph, const IntegerInputs& integers, bool& warned) {
  const auto name = [&](uint32_t id) { return "'" + graph.values[id].name + "'"; };
  const auto length = [&](uint32_t id) -> int64_t { return *integers(id, 1); };
  for (const LengthRule& rule : plan.lengths) {
    if (rule.slot.current != kNoValue) {
      const int64_t current = length(rule.slot.current);
      if (current < 1 || current > rule.tokens) {
        const std::string range = rule.tokens == 1 ? "" : "1 to ";
        fail(ErrorCode::Argument, "run: ", name(rule.slot.current), " is ", current, ", expected ", range, rule.tokens,
             ", the number of tokens this graph takes per run; ",
             current == 0 ? "set it before run" : "split a longer prompt into chunks");
      }
    }
    if (rule.slot.valid == kNoValue) continue;
    const int64_t valid = length(rule.slot.valid);
    if (valid < 0) {
      fail(ErrorCode::Argument, "run: ", name(rule.slot.valid), " is ", valid,
           ", expected the number of tokens already in the cache, 0 or more");
    }
    if (rule.context == 0 || rule.slot.current == kNoValue || warned) continue;
    const int64_t current = length(rule.slot.current);
    if (valid + current > rule.context) {
      warned = true;
      log(LogLevel::Warn, concat("run of '", graph.name, "': ", name(rule.slot.valid), " ", valid, " + ",
                                 name(rule.slot.current), " ", current, " passes the context length ", rule.context,
                                 "; tokens beyond it are dropped and the slot's results are meaningless"));
    }
  }
  for (const PositionRule& rule : plan.positions) check_live_positions(rule, graph, integers);
}

void refuse_input(const Graph& graph, const Plan::FloatInput& input) {
  const Value& value = graph.values[graph.inputs[input.port]];
  // What programs overflow is a mask that they fill with the least float32.
  const char* const advice = value.dtype == DType::Float16
                                 ? ": beyond 65504, the largest float16, numbers become infinite, so fill a mask with "
                                   "-65504 and not with the least float32"
                                 : "";
  fail(ErrorCode::Argument, "run: input '", value.name,
       "' holds a NaN or an infinity in its live rows; nothing was computed. Look at what was passed to set_input",
       advice);
}

}  // namespace tcim_lite
