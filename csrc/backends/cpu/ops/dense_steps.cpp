#include "backends/cpu/ops/dense_steps.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

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

template <>
void PlainStep<UnarySpec>::run(const RunContext& context) const {
  const int64_t size = elem_bytes(elem);
  for_chunks(context, count, kChunk, [&](int64_t begin, int64_t end, int) {
    context.kernels.unary[op][elem](
        {context.at(x) + begin * size, context.at(y) + begin * size, end - begin, alpha, beta});
  });
}

template <>
void PlainStep<ReduceSpec>::run(const RunContext& context) const {
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
      const auto* source = reinterpret_cast<const uint8_t*>(context.at(image)) + picture / parts * image_bytes;
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

template <>
void PlainStep<CastSpec>::run(const RunContext& context) const {
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
