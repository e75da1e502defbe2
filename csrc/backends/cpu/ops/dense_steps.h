// The steps over dense tensors that a graph from ONNX has besides Conv and MatMul.
#pragma once

#include "backends/cpu/plan.h"

namespace tcim_lite::cpu {

constexpr int64_t kGrainTerms = 1 << 16;  // that are worth handing to a member: some microseconds of products
constexpr int64_t kTasksOfMember = 4;     // that keep the pool busy to the end

// An operand's bytes: a weight's are known from the start.
struct Bytes {
  Bytes() = default;
  Bytes(const Operand& operand, const WeightFinder& finder)
      : value(operand.value), weight(operand.weight ? finder.find<std::byte>(operand.value) : nullptr) {}

  uint32_t value = kNoValue;
  const std::byte* weight = nullptr;

  const std::byte* at(const RunContext& context) const { return weight != nullptr ? weight : context.at(value); }
};

struct BroadcastStep final : Step, BroadcastSpec {
  BroadcastStep(BroadcastSpec spec, const WeightFinder& finder);
  int64_t member_bytes() const override;
  void run(const RunContext& context) const override;

 private:
  struct Read {
    Bytes bytes;
    const int64_t* strides;
    bool repeats;  // along a row
  };
  class RowPlaces;

  // `cols` elements of rows of y that are together; at: what each operand has at the first.
  void compute(const RunContext& context, const std::byte* const* at, int64_t rows, int64_t cols, std::byte* between,
               std::byte* to) const;

  std::vector<Read> reads_;  // those of the first op, then the others'
  int64_t rows_ = 1, cols_ = 1;
};

template <>
void PlainStep<UnarySpec>::run(const RunContext& context) const;
template <>
void PlainStep<ReduceSpec>::run(const RunContext& context) const;

struct SoftmaxStep final : Step, SoftmaxSpec {
  SoftmaxStep(SoftmaxSpec spec, const WeightFinder&) : SoftmaxSpec(std::move(spec)) {}
  void run(const RunContext& context) const override;
  int64_t member_bytes() const override { return cols * 4; }
};

struct LayerNormStep final : Step, LayerNormSpec {
  LayerNormStep(LayerNormSpec spec, const WeightFinder& finder)
      : LayerNormSpec(std::move(spec)), weight(finder.find<float>(weight_id)), bias(finder.find<float>(bias_id)) {}
  const float *weight, *bias;
  void run(const RunContext& context) const override;
};

struct MoveStep final : Step, MoveSpec {
  MoveStep(MoveSpec spec, const WeightFinder& finder) : MoveSpec(std::move(spec)), is_in_blocks(finder.in_blocks(y)) {
    for (const Box& box : boxes) sources.emplace_back(box.x, finder);
  }
  std::vector<Bytes> sources;
  bool is_in_blocks;  // as its operands are, which were computed there
  void run(const RunContext& context) const override;
};

struct GatherStep final : Step, GatherSpec {
  GatherStep(GatherSpec spec, const WeightFinder& finder)
      : GatherSpec(std::move(spec)), from(x, finder), at(indices, finder) {}
  Bytes from, at;
  int64_t shared_bytes() const override { return count * 8; }
  void run(const RunContext& context) const override;
};

struct ResampleStep final : Step, ResampleSpec {
  // Throws Error(Format) for an index beyond the axis.
  ResampleStep(ResampleSpec spec, const WeightFinder& finder);
  const int32_t* indices;
  const float* weights;
  int64_t member_bytes() const override;
  void run(const RunContext& context) const override;

 private:
  // Rows of one element each are turned, kTurnedRows at a time, so that lanes are rows.
  static constexpr int64_t kMostTurned = 1 << 13;
  bool turns() const;
};

struct TopKStep final : Step, TopKSpec {
  TopKStep(TopKSpec spec, const WeightFinder&) : TopKSpec(std::move(spec)) {}
  void run(const RunContext& context) const override;
  int64_t member_bytes() const override { return cols * 8; }
};

// Plain code for every CPU: it runs once for each image.
struct ResizerStep final : Step, ResizerSpec {
  ResizerStep(ResizerSpec spec, const WeightFinder& finder)
      : ResizerSpec(std::move(spec)), colours(finder.find<float>(colours_id)) {}
  const float* colours;
  void run(const RunContext& context) const override;
};

// Plain code for every CPU: what is converted are masks and indices, which are small.
template <>
void PlainStep<CastSpec>::run(const RunContext& context) const;

}  // namespace tcim_lite::cpu
