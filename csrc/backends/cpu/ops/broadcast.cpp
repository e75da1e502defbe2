// Ops of operands that repeat along axes, row by row, and the ops that follow in the same step.
#include <algorithm>
#include <cstring>

#include "backends/cpu/ops/blocks.h"
#include "backends/cpu/ops/dense_steps.h"
#include "backends/cpu/ops/units.h"
#include "base/half.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kRowElements = 4096;  // of a task

// What a Where does whose condition is one number for a row: rows next to each other are one copy, and none where they
// lie already, as those of a cache that a network updates in place.
class RowCopies {
 public:
  void add(const std::byte* from, std::byte* to, int64_t bytes) {
    if (from != from_ + bytes_ || to != to_ + bytes_) {
      end();
      from_ = from, to_ = to, bytes_ = 0;
    }
    bytes_ += bytes;
  }
  void end() {
    if (bytes_ > 0 && from_ != to_) std::memcpy(to_, from_, size_t(bytes_));
    bytes_ = 0;
  }

 private:
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  int64_t bytes_ = 0;
};

// Whether a condition takes the first of two: not 0 and not NaN.
bool takes_first(Elem elem, const std::byte* condition) {
  const auto is_number = [](auto number) { return number < 0 || number > 0; };
  if (elem == kI32) return is_number(*reinterpret_cast<const int32_t*>(condition));
  if (elem == kF16) return is_number(half_to_float(*reinterpret_cast<const uint16_t*>(condition)));
  return is_number(*reinterpret_cast<const float*>(condition));
}

}  // namespace

// The rows of a broadcast, one after another: how many elements each operand's row is behind its first.
class BroadcastStep::RowPlaces {
 public:
  RowPlaces(const BroadcastStep& step, int64_t row)
      : step_(step), count_(step.reads_.size()), outer_(std::max(step.axes - 1, 0)) {
    for (int axis = outer_; axis-- > 0; row /= step.extents[axis]) {
      at_[axis] = row % step.extents[axis];
      for (size_t i = 0; i < count_; ++i) offset[i] += at_[axis] * step.reads_[i].strides[axis];
    }
  }
  // How many rows follow each other at equal distances in every operand, `most` at most.
  int64_t together(int64_t most) const {
    return outer_ == 0 ? 1 : std::min(most, step_.extents[outer_ - 1] - at_[outer_ - 1]);
  }
  // Goes on behind `rows` that are together.
  void skip(int64_t rows) {
    for (int axis = outer_; axis-- > 0; rows = 1) {
      at_[axis] += rows;
      const bool ends = at_[axis] == step_.extents[axis];
      for (size_t i = 0; i < count_; ++i)
        offset[i] += step_.reads_[i].strides[axis] * (rows - (ends ? step_.extents[axis] : 0));
      if (!ends) return;
      at_[axis] = 0;
    }
  }

  int64_t offset[kMostOperands] = {};

 private:
  const BroadcastStep& step_;
  size_t count_;
  int outer_;
  int64_t at_[kMaxAxes] = {};
};

BroadcastStep::BroadcastStep(BroadcastSpec spec, const WeightFinder& finder) : BroadcastSpec(std::move(spec)) {
  const auto add = [&](const Operand& operand, const int64_t* strides) {
    reads_.push_back({Bytes(operand, finder), strides, axes == 0 || strides[axes - 1] == 0});
  };
  for (int i = 0; i < (op == kWhere ? 3 : 2); ++i) add(operands[i], strides[i]);
  for (const Then& next : then) {
    if (next.op >= 0) add(next.operand, next.strides);
  }
  for (int axis = 0; axis < axes; ++axis) (axis + 1 < axes ? rows_ : cols_) *= extents[axis];
}

// Between the ops the rows lie in scratch, each from a line on: where the masked end of one lay in the same line as the
// next one's first elements, these would wait for it.
int64_t BroadcastStep::member_bytes() const { return then.empty() ? 0 : round_up(kRowElements, 16) * elem_bytes(elem); }

void BroadcastStep::compute(const RunContext& context, const std::byte* const* at, int64_t rows, int64_t cols,
                            std::byte* between, std::byte* to) const {
  const int64_t size = elem_bytes(elem), between_stride = round_up(cols, 16);
  const auto stride = [&](size_t i) { return axes < 2 ? 0 : reads_[i].strides[axes - 2]; };
  const auto elementwise = [&](int kind, const void* a, int64_t a_stride, bool a_repeats, size_t i, bool ends) {
    context.kernels.elementwise[kind][elem]({a, at[i], ends ? to : between, rows, cols, a_stride, stride(i),
                                             ends ? cols_ : between_stride, a_repeats, reads_[i].repeats});
  };
  size_t used = 2, left = then.size();
  if (op == kWhere) {
    RowCopies copies;
    for (int64_t row = 0; row < rows; ++row) {
      const auto of = [&](size_t i) { return at[i] + row * stride(i) * size; };
      std::byte* y = left == 0 ? to + row * cols_ * size : between + row * between_stride * size;
      if (const size_t chosen = takes_first(elem, of(0)) ? 1 : 2; reads_[0].repeats && !reads_[chosen].repeats) {
        copies.add(of(chosen), y, cols * size);
      } else {
        context.kernels.where[elem](
            {of(0), of(1), of(2), y, cols, reads_[0].repeats, reads_[1].repeats, reads_[2].repeats});
      }
    }
    copies.end();
    ++used;
  } else {
    elementwise(op, at[0], stride(0), reads_[0].repeats, 1, left == 0);
  }
  for (const Then& next : then) {
    const bool ends = --left == 0;
    if (next.op >= 0) {
      elementwise(next.op, between, between_stride, false, used++, ends);
    } else {
      context.kernels.unary[next.function][elem]({between, ends ? to : between, cols, next.alpha, next.beta, rows,
                                                  between_stride, ends ? cols_ : between_stride});
    }
  }
}

void BroadcastStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem);
  const std::byte* base[kMostOperands] = {};
  for (size_t i = 0; i < reads_.size(); ++i) base[i] = reads_[i].bytes.at(context);
  std::byte* out = context.at(y);
  // Columns are cut first, and the first columns of all rows come first: where rows are planes, convolutions are cut by
  // pixels too, so that a member reads and writes lines of its own.
  const int64_t members = context.pool.size(), wide = cols_ >= kLeastPixels * members ? members : 1;
  const int64_t piece = std::min(cols_, round_up(parts_of(cols_, wide * parts_of(cols_, wide * kRowElements)), 16));
  const int64_t pieces = parts_of(cols_, piece), some = std::max<int64_t>(1, kRowElements / round_up(piece, 16));
  const int64_t groups = parts_of(rows_, some);
  const auto run = [&](int64_t index, int member) {
    const int64_t first = index / groups * piece, length = std::min(piece, cols_ - first);
    int64_t row = index % groups * some;
    RowPlaces places(*this, row);
    for (const int64_t end = std::min(row + some, rows_); row < end;) {
      const int64_t rows = places.together(end - row);
      const std::byte* at[kMostOperands] = {};
      for (size_t i = 0; i < reads_.size(); ++i)
        at[i] = base[i] + (places.offset[i] + (reads_[i].repeats ? 0 : first)) * size;
      compute(context, at, rows, length, context.member(member), out + (row * cols_ + first) * size);
      row += rows;
      places.skip(rows);
    }
  };
  if (rows_ * cols_ <= kRowElements) {
    for (int64_t index = 0; index < pieces * groups; ++index) run(index, 0);
  } else {
    context.pool.parallel_runs(pieces * groups, run);
  }
}

}  // namespace tcim_lite::cpu
