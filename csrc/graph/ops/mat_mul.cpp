#include <algorithm>

#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_mat_mul(const OpCheck& op) {
  op.arity(2, 2, 1);
  op.attributes({});
  const Value &a = op.input(0), &b = op.input(1), &y = op.output(0);
  const DType dtype = op.tensor(y);
  tensor_or_weight(op, a, dtype);
  tensor_or_weight(op, b, dtype);
  const size_t rank = y.shape.size();
  if (rank < 2 || a.shape.size() != rank || b.shape.size() != rank)
    op.refuse("'", a.name, "' is ", describe(a), " and '", b.name, "' ", describe(b), ", expected the rank of '",
              y.name, "', ", describe(y), ", and at least 2");
  bool fits = a.shape[rank - 1] == b.shape[rank - 2] && y.shape[rank - 2] == a.shape[rank - 2] &&
              y.shape[rank - 1] == b.shape[rank - 1];
  for (size_t axis = 0; axis + 2 < rank; ++axis) {
    for (const Value* operand : {&a, &b}) {
      fits = fits && (operand->shape[axis] == y.shape[axis] || operand->shape[axis] == 1);
    }
  }
  if (!fits)
    op.refuse("'", a.name, "' is ", describe(a), ", '", b.name, "' is ", describe(b), " and '", y.name, "' ",
              describe(y), ", expected [.., m, k], [.., k, n] and [.., m, n]");
}

// Where the matrices of an operand begin, product by product; from one index of its axes to the next it is `strides`.
std::vector<int64_t> offsets(const Shape& shape, const std::vector<int64_t>& strides, const Shape& result) {
  std::vector<int64_t> list = {0};
  for (size_t axis = 0; axis + 2 < shape.size(); ++axis) {
    const int64_t stride = shape[axis] == 1 ? 0 : strides[axis];
    std::vector<int64_t> longer;
    for (const int64_t offset : list) {
      for (int64_t i = 0; i < result[axis]; ++i) longer.push_back(offset + i * stride);
    }
    list = std::move(longer);
  }
  return list;
}

// Without y.
MatMulSpec product_of(PlanBuilder& plan, const Op& op) {
  constexpr int64_t kMostProducts = 1 << 20;
  MatMulSpec step;
  const Shape &a = plan.value(op.inputs[0]).shape, &b = plan.value(op.inputs[1]).shape,
              &y = plan.value(op.outputs[0]).shape;
  step.elem = plan.values.elem(op.outputs[0]);
  step.m = y[y.size() - 2];
  step.n = y.back();
  step.k = a.back();
  if (num_elements(y) / (step.m * step.n) > kMostProducts) {
    fail(ErrorCode::Unsupported, "MatMul of '", plan.value(op.inputs[0]).name, "' makes ",
         num_elements(y) / (step.m * step.n), " products; the planner takes up to ", kMostProducts);
  }
  step.a_offsets = offsets(a, strides_of(a), y);
  std::vector<int64_t> strides = strides_of(b);
  if (const Op* transpose = plan.transpose_of(op.inputs[1])) {
    step.b_turned = true;
    step.b = read_operand(plan, *transpose, 0);
    const std::vector<int64_t> own = strides_of(plan.value(transpose->inputs[0]).shape),
                               axes = numbers_of(*transpose, "axes");
    for (size_t axis = 0; axis < axes.size(); ++axis) strides[axis] = own[size_t(axes[axis])];
  } else {
    step.b = read_operand(plan, op, 1);
  }
  step.b_stride = strides[strides.size() - (step.b_turned ? 1 : 2)];
  step.b_offsets = offsets(b, strides, y);
  return step;
}

// The Softmax behind a MatMul whose result is the left side of another MatMul and nothing else. What both read stays as
// it is between them, unless it is a state.
const Op* softmax_between(PlanBuilder& plan, const Op& op) {
  if (plan.joins() != Joins::Products) return nullptr;
  const Op* softmax = plan.values.sole_consumer(op.outputs[0]);
  if (softmax == nullptr || softmax->kind != OpKind::Softmax || softmax->attribute("log", int64_t{0}) != 0)
    return nullptr;
  const uint32_t x = softmax->outputs[0];
  const Op* product = plan.values.sole_consumer(x);
  if (product == nullptr || product->kind != OpKind::MatMul || product->inputs[0] != x) return nullptr;
  const Shape &own = plan.value(x).shape, &y = plan.value(product->outputs[0]).shape;
  if (!std::equal(own.begin(), own.end() - 1, y.begin(), y.end() - 1)) return nullptr;
  for (const uint32_t id : op.inputs) {
    if (plan.values.is_state(id)) return nullptr;
  }
  return softmax;
}

void plan_mat_mul(PlanBuilder& plan, const Op& op) {
  if (const Op* softmax = softmax_between(plan, op)) {
    plan.defer_scores(op, softmax->outputs[0]);
    return plan.absorb(*softmax);
  }
  MatMulSpec step = product_of(plan, op);
  if (const Op* scores = plan.scores_of(op.inputs[0])) {
    step.softmax_of.push_back(product_of(plan, *scores));
    step.softmax_of.front().a = read_operand(plan, *scores, 0);
  } else {
    step.a = read_operand(plan, op, 0);
  }
  append_dense(plan, op, std::move(step));
}

void cost_mat_mul(const Graph& graph, const Op& op, OpCost& cost) {
  cost.work = WorkKind::Product;
  cost.operations =
      2 * uint64_t(num_elements(graph.values[op.outputs[0]].shape)) * uint64_t(graph.values[op.inputs[0]].shape.back());
}

}  // namespace

extern const OpDefinition MatMul = {"a [.., m, k] T, b [.., k, n] T, leading axes equal or 1 -> [.., m, n] T",
                                    "products of matrices",
                                    Cut::None,
                                    check_mat_mul,
                                    plan_mat_mul,
                                    nullptr,
                                    kNoOperand,
                                    cost_mat_mul};

}  // namespace tcim_lite::ops
