// A Conv of one pixel and the Conv channel by channel that alone reads it, as one step: a task computes some rows of a
// slab of channels and reads them at once, so that they stay in the member's second cache. Rows at the border of two
// tasks are computed by both.
#include <algorithm>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/ops/blocks.h"
#include "backends/cpu/ops/conv_direct.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kPixelsAtOnce = 392;  // whose products share turned weights; whole tiles of 14 and 7

}  // namespace

// Slabs times parts of the rows, the first rows of all slabs first.
struct ConvStep::JoinedTasks {
  JoinedTasks(const ConvStep& step, const Places& places, int64_t members) : window(step.window) {
    const Window::Axis& h = window.h;
    const JoinedRows limits(window, places.slab);
    reach = limits.reach;
    slabs = parts_of(step.groups, places.slab);
    const int64_t fit = std::max<int64_t>(1, (limits.between - reach) / h.stride + 1);
    int64_t split = std::min(parts_of(kTasksOfMember * members, slabs), limits.most_parts);
    if (has_rows_for(window, int(members))) split = std::max(split, members);
    rows = parts_of(h.out, std::max(parts_of(h.out, fit), split));
    parts = parts_of(h.out, rows);
    most_between = std::min(h.in, (rows - 1) * h.stride + reach) * window.w.in;
  }

  // The rows of x that `count` rows of y from `first` on read: [begin, end).
  void rows_read(int64_t first, int64_t count, int64_t& begin, int64_t& end) const {
    const Window::Axis& h = window.h;
    const int64_t top = first * h.stride - h.pad;
    begin = std::clamp<int64_t>(top, 0, h.in);
    end = std::clamp<int64_t>(top + (count - 1) * h.stride + reach, begin, h.in);
  }

  const Window& window;
  int64_t reach, slabs, rows, parts;
  int64_t most_between;  // pixels of x of a task
};

// A member's scratch.
struct ConvStep::JoinedScratch {
  JoinedScratch(std::byte* base, const ConvStep& step, const Places& places, const JoinedTasks& tasks)
      : product(base, places, kPixelsAtOnce),
        factors(reinterpret_cast<float*>(base + product_bytes(step, places))),
        between(factors + step.window.taps() * kBlock),
        result(between + tasks.most_between * places.slab) {}

  static int64_t bytes(const ConvStep& step, const Places& places, const JoinedTasks& tasks) {
    const int64_t pixels = tasks.most_between * places.slab + tasks.rows * step.window.w.out * kBlock;
    return product_bytes(step, places) + (step.window.taps() * kBlock + pixels) * 4;
  }

  DirectScratch product;
  float* factors;  // [taps, kBlock]
  float* between;  // rows of x: [slab / kBlock, pixels, kBlock]
  float* result;   // rows of a block of y, unless they are stored where they lie

 private:
  // Padding of x takes a row.
  static int64_t product_bytes(const ConvStep& step, const Places& places) {
    return round_up(std::max(DirectScratch::bytes(places, kPixelsAtOnce), step.window.w.in * 4), 64);
  }
};

int64_t ConvStep::joined_member_bytes() const {
  const Places places(*wide_, kernels());
  return JoinedScratch::bytes(*this, places, JoinedTasks(*this, places, ThreadPool::instance().size()));
}

void ConvStep::run_joined(const RunContext& context) const {
  const ConvStep& wide = *wide_;
  const Places places(wide, context.kernels);
  const JoinedTasks tasks(*this, places, context.pool.size());
  const int64_t size = elem_bytes(elem), taps = window.taps(), pixels = window.out_pixels();
  const int64_t cols = window.w.out, in_cols = window.w.in;
  const int64_t image_bytes = wide.x_in_blocks ? wide.x_blocks_bytes() : wide.channels * window.in_pixels() * size;
  for (int64_t image = 0; image < batch; ++image) {
    const float* source = wide.prepare_direct(context, places, context.at(wide.x) + image * image_bytes);
    const auto run = [&](int64_t index, int member) {
      const JoinedScratch scratch(context.member(member), *this, places, tasks);
      const int64_t channel = index % tasks.slabs * places.slab, width = std::min(places.slab, groups - channel);
      const int64_t first = index / tasks.slabs * tasks.rows, rows = std::min(tasks.rows, window.h.out - first);
      int64_t begin, end;
      tasks.rows_read(first, rows, begin, end);
      const int64_t between = (end - begin) * in_cols;
      for (int64_t done = 0; done < between; done += kPixelsAtOnce) {
        const Panel part{image, 0, begin * in_cols + done, std::min(kPixelsAtOnce, between - done)};
        places.of_pixels(part.pixel, part.count, scratch.product.read_at);
        wide.multiply_direct(context, places, source, part, channel, scratch.product, scratch.between + done * kBlock,
                             between, done > 0 && wide.inputs() <= places.terms ? Holds::Weights : Holds::Nothing);
      }
      const BlockWindow read{axis_of(window.h), axis_of(window.w), first, rows, cols};
      for (int64_t done = 0; done < width; done += kBlock) {
        const int64_t at = channel + done, some = std::min(kBlock, width - done);
        const int64_t block = image * parts_of(groups, kBlock) + at / kBlock;
        context.kernels.slab[elem]({weights + at * taps * size, some, taps, taps, scratch.factors});
        const float* top = scratch.between + (done / kBlock * between - begin * in_cols) * kBlock;
        const float* biases = bias == nullptr ? nullptr : bias + at;
        if (y_in_blocks) {
          float* to = reinterpret_cast<float*>(context.at(y)) + (block * pixels + first * cols) * kBlock;
          context.kernels.depthwise_block({read, top, scratch.factors, biases, nullptr, to, some, elem, stored_end()});
          end_blocks(context, to, rows * cols);
          continue;
        }
        // Sums of fp32, which become elements where they are turned.
        context.kernels.depthwise_block({read, top, scratch.factors, biases, nullptr, scratch.result, some, kF32});
        std::byte* planes = context.at(y) + ((image * groups + at) * pixels + first * cols) * size;
        store_turned(context.kernels, elem,
                     {scratch.result, nullptr, nullptr, planes, some, rows * cols, pixels, stored_end()});
        end_planes(context, planes, some, rows * cols);
      }
    };
    context.pool.parallel_runs(tasks.slabs * tasks.parts, run);
  }
}

}  // namespace tcim_lite::cpu
