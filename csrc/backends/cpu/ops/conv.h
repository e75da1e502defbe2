// Conv: over panels of 32 pixels, with lanes across outputs, or channel by channel.
#pragma once

#include "backends/cpu/ops/dense_steps.h"

namespace tcim_lite::cpu {

// Elements [first, end) of an axis of a result, which read taps [first_tap, end_tap) of the input and others of the
// padding.
struct TapRun {
  bool has(int64_t tap) const { return first_tap <= tap && tap < end_tap; }
  int64_t taps() const { return end_tap - first_tap; }
  int64_t first, end, first_tap, end_tap;
};
std::vector<TapRun> tap_runs(const Window::Axis& axis);

// Whether so many taps lie in the padding that it pays to leave them out (conv_inside.cpp).
bool leaves_out_padding(const ConvSpec& conv);

struct ConvStep final : Step, ConvSpec {
  ConvStep(ConvSpec spec, const WeightFinder& finder)
      : ConvSpec(std::move(spec)),
        weights(finder.find<std::byte>(weights_id)),
        bias(finder.find<float>(bias_id)),
        added(residual, finder),
        x_in_blocks(finder.in_blocks(x)),
        y_in_blocks(finder.in_blocks(y)),
        residual_in_blocks(!residual.weight && finder.in_blocks(residual.value)),
        direct_offsets_(direct_offsets()),
        depthwise_offsets_(depthwise_offsets()),
        row_runs_(tap_runs(window.h)),
        column_runs_(tap_runs(window.w)),
        is_joined_(finder.joined(y) != nullptr) {
    if (const ConvSpec* first = finder.joined(x)) wide_ = std::make_unique<ConvStep>(*first, finder);
  }

  const std::byte* weights;
  const float* bias;
  Bytes added;
  bool x_in_blocks, y_in_blocks, residual_in_blocks;
  void run(const RunContext& context) const override;
  int64_t shared_bytes() const override;
  int64_t member_bytes() const override;

 private:
  // Neighbouring pixels of a group of an image.
  struct Panel {
    int64_t image, group, pixel, count;
  };
  int64_t panels() const;
  Panel panel(int64_t index) const;
  // Output channels of a task: all of a group, or a share of them where panels are too few to keep the pool busy.
  int64_t share(int64_t members) const;

  // What the pixels of a panel read, ready to be multiplied.
  int64_t prepared_bytes() const;
  void prepare(const RunContext& context, const Panel& panel, int member, std::byte* prepared) const;
  // Output channels [row, row + rows) of the group.
  void multiply(const RunContext& context, const Panel& panel, const std::byte* prepared, int64_t row, int64_t rows,
                int member) const;

  // Packed weights of outputs [row, row + rows) as rows: for the few layers that are packed and yet take panels.
  void unpack_rows(int64_t row, int64_t rows, float* to) const;
  // What the pixels read, [inputs, kPanel] as T.
  template <typename T>
  void unfold_inputs(const RunContext& context, const Panel& panel, T* unfolded) const;
  // The function as kernels that store take it, or none where it takes a pass of its own.
  ConvEnd stored_end() const { return can_end(function) ? ConvEnd{function, alpha, beta} : ConvEnd{}; }
  // A function that takes a pass of its own, on the first `pixels` of `count` planes of y from these on.
  void end_planes(const RunContext& context, std::byte* planes, int64_t count, int64_t pixels) const;
  // Sums [rows, kPanel] of channels from `channel` on become elements of y.
  void store(const RunContext& context, const Panel& panel, int64_t channel, int64_t rows, const float* acc) const;

  struct Places;  // conv_direct.h

  // conv_blocks.cpp
  // Whether y is computed in blocks. If its readers want planes, it is turned afterwards.
  bool makes_blocks() const { return y_in_blocks || residual_in_blocks || is_depthwise_in_blocks(); }
  bool is_depthwise_in_blocks() const { return x_in_blocks && keeps_blocks(*this); }
  int64_t x_blocks_bytes() const;  // of an image of x
  int64_t blocks_bytes() const;    // of shared scratch: a result that is turned afterwards
  std::byte* result(const RunContext& context) const;
  void turn_result(const RunContext& context) const;
  void pad_blocks(const RunContext& context, const Places& places, const float* image, float* padded) const;
  // As end_planes, on `pixels` of a block of y.
  void end_blocks(const RunContext& context, float* block, int64_t pixels) const;
  void run_depthwise_blocks(const RunContext& context) const;

  // conv_quant.cpp
  int64_t quantized_bytes() const;  // of a prepared panel
  int64_t quantized_member_bytes() const;
  void prepare_quantized(const RunContext& context, const Panel& panel, int member, std::byte* prepared) const;
  void multiply_quantized(const RunContext& context, const Panel& panel, const std::byte* prepared, int64_t row,
                          int64_t rows, int member) const;

  // conv_depthwise.cpp
  bool is_depthwise() const;                       // one channel and one output in a group
  std::vector<int64_t> depthwise_offsets() const;  // of all taps, empty unless is_depthwise()
  int64_t depthwise_bytes() const;
  bool is_depthwise_in_place() const;
  void run_depthwise_in_place(const RunContext& context) const;
  void run_depthwise(const RunContext& context) const;

  // conv_turned.cpp
  bool is_depthwise_turned() const;
  int64_t turned_bytes() const;
  void run_depthwise_turned(const RunContext& context) const;

  // conv_direct.cpp, conv_pack.cpp
  struct DirectTasks;
  struct DirectScratch;
  struct SlabWeights;
  bool is_direct() const;
  std::vector<int64_t> direct_offsets() const;  // of all taps, empty unless is_direct()
  int64_t direct_shared_bytes() const;
  int64_t direct_member_bytes() const;
  void run_direct(const RunContext& context) const;
  template <typename T>
  void pack(const RunContext& context, const T* planes, int64_t count, int64_t pixel, int64_t pixels,
            std::byte* scratch, const Places& places, float* to) const;
  void pack_block(const RunContext& context, const Places& places, const std::byte* planes, int64_t channel,
                  int64_t first, int64_t pixel, int64_t end, int member, float* packed) const;
  const float* prepare_direct(const RunContext& context, const Places& places, const std::byte* image) const;
  // What the scratch has already: the slab's weights, if one part has all terms, or the sums.
  enum class Holds { Nothing, Weights, Sums };
  // A slab of outputs from `row` on at the pixels of `part`; `source` is the group's first channel. The member is
  // likely to go on with the next. Blocks of `to_pixels` come to `to` instead of the result.
  void multiply_direct(const RunContext& context, const Places& places, const float* source, const Panel& part,
                       int64_t row, const DirectScratch& scratch, float* to = nullptr, int64_t to_pixels = 0,
                       Holds holds = Holds::Nothing) const;

  // conv_inside.cpp
  struct InsideScratch;
  int64_t inside_member_bytes(const Places& places, int64_t pixels) const;
  bool has_finite_weights(const RunContext& context) const;
  void sum_inside(const RunContext& context, const Places& places, const float* source, const Panel& part, int64_t row,
                  const DirectScratch& scratch, bool finite) const;
  void sum_taps(const RunContext& context, const Places& places, const float* source, const Panel& part, int64_t row,
                const InsideScratch& scratch, bool all) const;

  // conv_joined.cpp
  struct JoinedTasks;
  struct JoinedScratch;
  int64_t joined_member_bytes() const;
  void run_joined(const RunContext& context) const;

  std::vector<int64_t> direct_offsets_, depthwise_offsets_;
  std::vector<TapRun> row_runs_, column_runs_;
  bool is_joined_;                  // the step that reads y computes it
  std::unique_ptr<ConvStep> wide_;  // the Conv of x, where this step computes that
};

}  // namespace tcim_lite::cpu
