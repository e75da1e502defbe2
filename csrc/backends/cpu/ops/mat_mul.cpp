// MatMul, and attention as one step: MatMul, Softmax and MatMul of some rows at a time, so that their scores stay in
// the second cache.
#include "backends/cpu/ops/mat_mul.h"

#include <algorithm>

#include "backends/cpu/ops/panel_product.h"

namespace tcim_lite::cpu {
namespace {

// What a member does of `rows` rows when there are `columns` other tasks: all, or a share that keeps the pool busy.
int64_t rows_of_task(const RunContext& context, int64_t rows, int64_t columns) {
  const int64_t wanted = kTasksOfMember * context.pool.size();
  const int64_t parts = std::clamp<int64_t>((wanted + columns - 1) / columns, 1, (rows + kPanelRows - 1) / kPanelRows);
  const int64_t share = (rows + parts - 1) / parts;
  return (share + kPanelRows - 1) / kPanelRows * kPanelRows;
}

// Rows [row, end) of a product, in columns [column, column + kPanel): matrices and y at their first elements.
void multiply_rows(const RunContext& context, const MatMulSpec& spec, const std::byte* a, const std::byte* b,
                   int64_t row, int64_t end, int64_t column, const PanelScratch& scratch, std::byte* y) {
  const int64_t size = elem_bytes(spec.elem), count = std::min(kPanel, spec.n - column);
  context.kernels.widen[spec.elem]({b + column * size, scratch.panel, spec.k, count, spec.b_stride, kPanel, 1.0f});
  for (; row < end; row += kPanelRows) {
    const int64_t rows = std::min(kPanelRows, end - row);
    multiply_panel(context, spec.elem, a, row, rows, spec.k, scratch.panel, scratch);
    std::byte* out = y + (row * spec.n + column) * size;
    context.kernels.gemm_store[spec.elem]({scratch.acc, nullptr, nullptr, out, rows, count, spec.n});
  }
}

bool has_few_rows(const MatMulSpec& spec) { return spec.b_turned || spec.m <= kFewProductRows; }

// All rows of a product that has few, in columns [column, column + cols). `scratch` holds [m, k] floats.
void multiply_few(const RunContext& context, const MatMulSpec& spec, const std::byte* a, const std::byte* b,
                  int64_t column, int64_t cols, std::byte* scratch, std::byte* y) {
  const int64_t size = elem_bytes(spec.elem), step = spec.b_turned ? spec.b_stride : 1, count = spec.m * spec.k;
  if (spec.elem == kF16) {
    context.kernels.widen[kF16]({a, reinterpret_cast<float*>(scratch), 1, count, count, count, 1.0f});
    a = scratch;
  }
  context.kernels.few_rows[spec.elem]({reinterpret_cast<const float*>(a), b + column * step * size, y + column * size,
                                       spec.m, spec.k, cols, spec.b_stride, spec.n, spec.b_turned});
}

// Rows [0, rows) of a product, at most kPanelRows; all of them where there are few.
void multiply(const RunContext& context, const MatMulSpec& spec, const std::byte* a, const std::byte* b, int64_t rows,
              std::byte* scratch, std::byte* y) {
  if (has_few_rows(spec)) return multiply_few(context, spec, a, b, 0, spec.n, scratch, y);
  for (int64_t column = 0; column < spec.n; column += kPanel)
    multiply_rows(context, spec, a, b, 0, rows, column, PanelScratch(scratch, spec.k), y);
}

// A member's scratch for attention.
struct AttentionScratch {
  AttentionScratch(std::byte* base, const MatMulSpec& scores)
      : scores(base + product_bytes(scores)),
        exponentials(reinterpret_cast<float*>(this->scores + scores_bytes(scores))) {}

  static int64_t bytes(const MatMulSpec& scores) { return product_bytes(scores) + scores_bytes(scores) + scores.n * 4; }

  std::byte* scores;    // [kPanelRows or m, n] T, behind the scratch of the products
  float* exponentials;  // [n]

 private:
  static int64_t product_bytes(const MatMulSpec& scores) {
    return PanelScratch::bytes(std::max(scores.k, scores.n), scores.elem == kF16);
  }
  static int64_t scores_bytes(const MatMulSpec& scores) {
    return (std::min(kPanelRows, scores.m) * scores.n * elem_bytes(scores.elem) + 63) / 64 * 64;
  }
};

}  // namespace

int64_t MatMulStep::member_bytes() const {
  if (!softmax_of.empty()) return AttentionScratch::bytes(softmax_of.front());
  return has_few_rows(*this) ? m * k * 4 : PanelScratch::bytes(k, elem == kF16);
}

void MatMulStep::run(const RunContext& context) const {
  if (!softmax_of.empty()) return run_attention(context);
  if (has_few_rows(*this)) return run_few_rows(context);
  const int64_t size = elem_bytes(elem), panels = (n + kPanel - 1) / kPanel;
  const int64_t columns = int64_t(a_offsets.size()) * panels;
  const int64_t share = rows_of_task(context, m, columns), shares = (m + share - 1) / share;
  context.pool.parallel_for(columns * shares, [&](int64_t index, int member) {
    const int64_t product = index / shares / panels, first = index % shares * share;
    multiply_rows(context, *this, left.at(context) + a_offsets[size_t(product)] * size,
                  right.at(context) + b_offsets[size_t(product)] * size, first, std::min(first + share, m),
                  index / shares % panels * kPanel, PanelScratch(context.member(member), k),
                  context.at(y) + product * m * n * size);
  });
}

void MatMulStep::run_few_rows(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), products = int64_t(a_offsets.size());
  const int64_t wanted = kTasksOfMember * context.pool.size();
  const int64_t parts = std::clamp<int64_t>((wanted + products - 1) / products, 1, (n + kPanel - 1) / kPanel);
  const int64_t width = (n + parts * kPanel - 1) / (parts * kPanel) * kPanel, pieces = (n + width - 1) / width;
  context.pool.parallel_for(
      products * pieces,
      [&](int64_t index, int member) {
        const int64_t product = index / pieces, column = index % pieces * width;
        multiply_few(context, *this, left.at(context) + a_offsets[size_t(product)] * size,
                     right.at(context) + b_offsets[size_t(product)] * size, column, std::min(width, n - column),
                     context.member(member), context.at(y) + product * m * n * size);
      },
      std::max<int64_t>(1, kGrainTerms / (m * k * width)));
}

void MatMulStep::run_attention(const RunContext& context) const {
  const MatMulSpec& scores = softmax_of.front();
  const int64_t size = elem_bytes(elem), blocks = (m + kPanelRows - 1) / kPanelRows;
  context.pool.parallel_for(int64_t(b_offsets.size()) * blocks, [&](int64_t index, int member) {
    const auto product = size_t(index / blocks);
    const int64_t row = index % blocks * kPanelRows, rows = std::min(kPanelRows, m - row);
    std::byte* base = context.member(member);
    const AttentionScratch scratch(base, scores);
    const std::byte* q = left.at(context) + (scores.a_offsets[product] + row * scores.k) * size;
    const std::byte* keys = scores_right.at(context) + scores.b_offsets[product] * size;
    multiply(context, scores, q, keys, rows, base, scratch.scores);
    context.kernels.softmax[elem]({scratch.scores, scratch.scores, scratch.exponentials, rows, scores.n, false});
    const std::byte* values = right.at(context) + b_offsets[product] * size;
    multiply(context, *this, scratch.scores, values, rows, base,
             context.at(y) + (int64_t(product) * m + row) * n * size);
  });
}

}  // namespace tcim_lite::cpu
