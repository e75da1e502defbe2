#include "graph/ops/op_definition.h"
#include "graph/ops/window.h"

namespace tcim_lite::ops {
namespace {

void check_conv(const OpCheck& op) {
  op.arity(2, 3, 1);
  op.attributes({TCIM_LITE_WINDOW_ATTRIBUTES, "groups"});
  const Value &x = op.input(0), &weight = op.input(1), &y = op.output(0);
  const DType dtype = op.tensor(x);
  check_window(op, x, y);
  const int64_t groups = op.whole_number("groups");
  if (groups < 1 || x.shape[1] % groups != 0 || y.shape[1] % groups != 0)
    op.refuse("attribute 'groups' is ", groups, ", '", x.name, "' is ", describe(x), " and '", y.name, "' ",
              describe(y));
  const std::vector<int64_t> kernel = numbers(op, "kernel", 2);
  const int64_t inputs = x.shape[1] / groups * kernel[0] * kernel[1];
  if (weight.format == WeightFormat::LinearW8) {
    if (dtype != DType::Float16) op.refuse("'", x.name, "' is ", describe(x), ", packed weights take float16");
    const int64_t padded = (inputs + kGroup - 1) / kGroup * kGroup;
    if (groups != 1 || weight.shape != Shape{y.shape[1], padded})
      op.refuse("'", weight.name, "' is ", describe(weight), ", expected [", y.shape[1], ", ", padded,
                "] and one group");
  } else if (weight.format == WeightFormat::LinearF16 || weight.format == WeightFormat::LinearF32) {
    if (groups != 1 || weight.dtype != dtype || weight.shape != Shape{y.shape[1], inputs})
      op.refuse("'", weight.name, "' is ", describe(weight), ", expected ", name_of(dtype), " [", y.shape[1], ", ",
                inputs, "] and one group");
  } else {
    op.constant(weight, dtype, {y.shape[1], inputs});
  }
  if (op.num_inputs() == 3) op.constant(op.input(2), DType::Float32, {y.shape[1]});
  op.expect(y, dtype, {x.shape[0], y.shape[1], y.shape[2], y.shape[3]});
}

// What reads the result and nothing else does becomes the end of the step: Add, then a function. Returns the op whose
// result the step writes.
const Op* absorb_end(PlanBuilder& plan, ConvSpec& step, const Op& op) {
  const Op* last = &op;
  const Op* consumer = plan.values.sole_consumer(op.outputs[0]);
  if (consumer != nullptr && consumer->kind == OpKind::Add && consumer->find("broadcast") == nullptr) {
    const size_t other = consumer->inputs[0] == op.outputs[0] ? 1 : 0;
    if (consumer->inputs[other] != op.outputs[0] && plan.values.produced(consumer->inputs[other])) {
      step.residual = read_operand(plan, *consumer, other);
      plan.absorb(*consumer);
      last = consumer;
      consumer = plan.values.sole_consumer(last->outputs[0]);
    }
  }
  if (consumer != nullptr && (step.function = function_of(consumer->kind)) >= 0) {
    step.alpha = float(consumer->attribute("alpha", 0.0));
    step.beta = float(consumer->attribute("beta", 0.0));
    plan.absorb(*consumer);
    last = consumer;
  }
  return last;
}

void plan_conv(PlanBuilder& plan, const Op& op) {
  ConvSpec step;
  const Shape &x = plan.value(op.inputs[0]).shape, &y = plan.value(op.outputs[0]).shape;
  step.elem = plan.values.elem(op.inputs[0]);
  step.window = window_of(op, x, y);
  step.batch = x[0];
  step.groups = op.attribute("groups", int64_t{1});
  step.channels = x[1] / step.groups;
  step.outputs = y[1] / step.groups;
  step.weights_id = op.inputs[1];
  step.format = plan.value(op.inputs[1]).format;
  if (plan.numerics() == Numerics::Float && step.elem == kF32 && plan.value(op.inputs[1]).dtype != DType::Float32) {
    fail(ErrorCode::Unsupported, "Conv with '", plan.value(op.inputs[1]).name,
         "': TCIM_LITE_NUMERICS=float takes float32 weights; unset it, or compile with --quant float32");
  }
  if (op.inputs.size() > 2) step.bias_id = op.inputs[2];
  step.x = read_dense(plan, op, 0);
  step.y = write_dense(plan, *absorb_end(plan, step, op));
  plan.append(std::move(step));
}

void cost_conv(const Graph& graph, const Op& op, OpCost& cost) {
  const Value &x = graph.values[op.inputs[0]], &weight = graph.values[op.inputs[1]];
  const Shape& y = graph.values[op.outputs[0]].shape;
  const Window window = window_of(op, x.shape, y);
  const int64_t inputs = x.shape[1] / op.attribute("groups", int64_t{1}) * window.h.kernel * window.w.kernel;
  cost.work = WorkKind::Conv;
  cost.quantized = is_quantized(weight.format);
  cost.operations = 2 * uint64_t(num_elements(y)) * uint64_t(inputs);
}

}  // namespace

extern const OpDefinition Conv = {
    "x [N, C, H, W] T, weight [M, C / groups * kh * kw] T, dense or packed, bias [M] float32 (optional) "
    "{kernel: \"kh,kw\", strides, pads (before), dilations, upsample: likewise, groups: int} -> [N, M, OH, OW] T",
    "convolution; a weight of one group may be packed as linear_f16, linear_f32 (both of T) or linear_w8, whose last "
    "axis is padded with zeros to a multiple of 64",
    Cut::None,
    check_conv,
    plan_conv,
    nullptr,
    kNoOperand,
    cost_conv};

}  // namespace tcim_lite::ops
