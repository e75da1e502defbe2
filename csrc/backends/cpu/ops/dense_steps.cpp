#include "backends/cpu/ops/dense_steps.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "backends/cpu/ops/blocks.h"
#include "backends/cpu/ops/units.h"
#include "base/error.h"
#include "base/half.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kChunk = 4096;  // elements of a task that does little with each

// body(begin, end, member) over [0, count) in chunks. Members take runs of them, so that each mostly reads what it
// wrote itself in the step before.
template <typename Body>
void for_chunks(const RunContext& context, int64_t count, int64_t chunk, const Body& body) {
  chunk = std::max<int64_t>(chunk, 1);
  if (count <= chunk) return body(int64_t{0}, count, 0);
  context.pool.parallel_runs((count + chunk - 1) / chunk, [&](int64_t index, int member) {
    body(index * chunk, std::min(index * chunk + chunk, count), member);
  });
}

// Rows of `cols` elements, about kChunk in a task.
template <typename Body>
void for_dense_rows(const RunContext& context, int64_t rows, int64_t cols, const Body& body) {
  for_chunks(context, rows, kChunk / cols, body);
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
int64_t BroadcastStep::member_bytes() const { return then.empty() ? 0 : round_up(kChunk, 16) * elem_bytes(elem); }

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
    for (int64_t row = 0; row < rows; ++row) {
      const auto of = [&](size_t i) { return at[i] + row * stride(i) * size; };
      std::byte* y = left == 0 ? to + row * cols_ * size : between + row * between_stride * size;
      context.kernels.where[elem](
          {of(0), of(1), of(2), y, cols, reads_[0].repeats, reads_[1].repeats, reads_[2].repeats});
    }
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
  const int64_t piece = std::min(cols_, round_up(parts_of(cols_, wide * parts_of(cols_, wide * kChunk)), 16));
  const int64_t pieces = parts_of(cols_, piece), some = std::max<int64_t>(1, kChunk / round_up(piece, 16));
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
  if (rows_ * cols_ <= kChunk) {
    for (int64_t index = 0; index < pieces * groups; ++index) run(index, 0);
  } else {
    context.pool.parallel_runs(pieces * groups, run);
  }
}

void UnaryStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem);
  for_chunks(context, count, kChunk, [&](int64_t begin, int64_t end, int) {
    context.kernels.unary[op][elem](
        {context.at(x) + begin * size, context.at(y) + begin * size, end - begin, alpha, beta});
  });
}

void ReduceStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem);
  for_dense_rows(context, rows, cols, [&](int64_t begin, int64_t end, int) {
    context.kernels.reduce[op][elem](
        {context.at(x) + begin * cols * size, context.at(y) + begin * size, end - begin, cols});
  });
}

void SoftmaxStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem);
  for_dense_rows(context, rows, cols, [&](int64_t begin, int64_t end, int member) {
    context.kernels.softmax[elem]({context.at(x) + begin * cols * size, context.at(y) + begin * cols * size,
                                   reinterpret_cast<float*>(context.member(member)), end - begin, cols, log});
  });
}

void LayerNormStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem);
  for_dense_rows(context, rows, cols, [&](int64_t begin, int64_t end, int) {
    context.kernels.layer_norm[elem]({context.at(x) + begin * cols * size, context.at(y) + begin * cols * size, weight,
                                      bias, end - begin, cols, epsilon});
  });
}

void ResizerStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), rows = form.out_h, cols = form.out_w;
  for_dense_rows(context, batch * rows, cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t picture = i / rows, row = i % rows;
      const auto* source = reinterpret_cast<const uint8_t*>(context.at(image)) + picture * image_bytes;
      const int32_t* numbers =
          crops == kNoValue ? crop : reinterpret_cast<const int32_t*>(context.at(crops)) + picture * kCropNumbers;
      std::byte* target = context.at(y) + (picture * 3 * rows + row) * cols * size;
      for (int64_t col = 0; col < cols; ++col) {
        float pixel[3];
        resizer_pixel(source, form, numbers, colours, int32_t(row), int32_t(col), pixel);
        for (int channel = 0; channel < 3; ++channel) {
          const int64_t at = channel * rows * cols + col;
          if (elem == kF16)
            reinterpret_cast<uint16_t*>(target)[at] = float_to_half(pixel[channel]);
          else
            reinterpret_cast<float*>(target)[at] = pixel[channel];
        }
      }
    }
  });
}

void CastStep::run(const RunContext& context) const {
  const std::byte* source = context.at(x);
  const auto* numbers = reinterpret_cast<const int32_t*>(source);
  std::byte* target = context.at(y);
  for_chunks(context, count, kChunk, [&](int64_t begin, int64_t end, int) {
    if (to == kI32) {
      auto* wholes = reinterpret_cast<int32_t*>(target);
      if (from == kF16) {
        const auto* halves = reinterpret_cast<const uint16_t*>(source);
        for (int64_t i = begin; i < end; ++i) wholes[i] = whole_part(half_to_float(halves[i]));
      } else {
        const auto* floats = reinterpret_cast<const float*>(source);
        for (int64_t i = begin; i < end; ++i) wholes[i] = whole_part(floats[i]);
      }
    } else if (to == kF16) {
      // One rounding: what float32 does not hold is beyond float16.
      for (int64_t i = begin; i < end; ++i)
        reinterpret_cast<uint16_t*>(target)[i] = float_to_half_saturate(float(numbers[i]));
    } else {
      for (int64_t i = begin; i < end; ++i) reinterpret_cast<float*>(target)[i] = float(numbers[i]);
    }
  });
}

namespace {

// The first of the largest or smallest numbers; of NaN alone 0. Lanes of their own let a compiler use vectors.
template <typename Number>
int32_t best_of(const Number* numbers, int32_t count, bool largest) {
  using Limits = std::numeric_limits<Number>;
  constexpr int32_t kLanes = 32;
  constexpr Number kHighest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  constexpr Number kLowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  Number lanes[kLanes], best;
  const auto fold = [&](auto better, Number worst) {
    std::fill(lanes, lanes + kLanes, worst);
    for (int32_t i = 0; i + kLanes <= count; i += kLanes) {
      for (int32_t lane = 0; lane < kLanes; ++lane)
        lanes[lane] = better(numbers[i + lane], lanes[lane]) ? numbers[i + lane] : lanes[lane];
    }
    best = worst;
    for (const Number v : lanes) best = better(v, best) ? v : best;
    for (int32_t i = count / kLanes * kLanes; i < count; ++i) best = better(numbers[i], best) ? numbers[i] : best;
  };
  if (largest) {
    fold(std::greater<Number>(), kLowest);
  } else {
    fold(std::less<Number>(), kHighest);
  }
  const int32_t place = int32_t(std::find(numbers, numbers + count, best) - numbers);
  if (place < count) return place;
  return 0;  // NaN alone: no number is equal to `best`
}

// order[0, chosen): where the best of the numbers are.
template <typename Number>
void rank(const Number* numbers, int32_t count, int64_t chosen, bool largest, int32_t* order) {
  if (chosen == 1) {
    order[0] = best_of(numbers, count, largest);
    return;
  }
  for (int32_t i = 0; i < count; ++i) order[i] = i;
  // NaN is behind every number.
  const auto before = [&](int32_t a, int32_t b) {
    const Number left = numbers[a], right = numbers[b];
    const bool odd_left = left != left, odd_right = right != right;
    if (odd_left || odd_right) return odd_left == odd_right ? a < b : odd_right;
    if (left != right) return largest ? left > right : left < right;
    return a < b;
  };
  std::partial_sort(order, order + chosen, order + count, before);
}

}  // namespace

void TopKStep::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem);
  for_dense_rows(context, rows, cols, [&](int64_t begin, int64_t end, int member) {
    auto* numbers = reinterpret_cast<float*>(context.member(member));
    auto* order = reinterpret_cast<int32_t*>(numbers + cols);
    for (int64_t row = begin; row < end; ++row) {
      const std::byte* source = context.at(x) + row * cols * size;
      if (elem == kI32) {
        rank(reinterpret_cast<const int32_t*>(source), int32_t(cols), chosen, largest, order);
      } else {
        context.kernels.widen[elem]({source, numbers, 1, cols, cols, cols, 1.0f});
        rank(numbers, int32_t(cols), chosen, largest, order);
      }
      auto* places = reinterpret_cast<int32_t*>(context.at(indices)) + row * chosen;
      for (int64_t i = 0; i < chosen; ++i) {
        places[i] = order[i];
        std::memcpy(context.at(values) + (row * chosen + i) * size, source + order[i] * size, size_t(size));
      }
    }
  });
}

}  // namespace tcim_lite::cpu
