#include "backends/cpu/ops/moe.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "backends/cpu/ops/linear_rows.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kLanes = 16;  // partial sums of a reduction (docs/numerics.md section 6)

float tree_sum(float (&sums)[kLanes]) {
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

// Whether expert `a` comes before `b`, an expert of a lower id: NaN is below everything.
bool is_larger(float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); }

}  // namespace

void MoERouteStep::run(const RunContext& context) const {
  for_rows(context, context.rows_of(logits), [&](int64_t begin, int64_t end, int member) {
    for (int64_t row = begin; row < end; ++row) route(context, row, reinterpret_cast<float*>(context.member(member)));
  });
}

void MoERouteStep::route(const RunContext& context, int64_t row, float* scratch) const {
  const KernelTable& kernels = context.kernels;
  float *const logit = scratch, *const share = scratch + experts;
  auto* const kept = reinterpret_cast<int32_t*>(share + experts + groups);  // by group: whether its experts take part
  const std::byte* const source = context.at(logits.value) + row * logits.stride * elem_bytes(elem);
  kernels.widen[elem]({source, logit, 1, experts, experts, experts, 1.0f});
  if (scored()) score(context, logit, share);
  if (kept_groups < groups) keep_groups(logit, share + experts, kept);

  // Insertion into the best so far: an expert passes only smaller ones, so of equal ones the lower id stays ahead.
  auto* const id = reinterpret_cast<int32_t*>(context.at(ids.value)) + row * ids.stride;
  int64_t found = 0;
  for (int64_t expert = 0; expert < experts; ++expert) {
    if (kept_groups < groups && kept[expert / (experts / groups)] == 0) continue;
    if (found == chosen && !is_larger(logit[expert], logit[id[found - 1]])) continue;
    int64_t place = found < chosen ? found++ : found - 1;
    for (; place > 0 && is_larger(logit[expert], logit[id[place - 1]]); --place) id[place] = id[place - 1];
    id[place] = int32_t(expert);
  }

  const float largest = logit[id[0]];
  float sum = 0;
  if (threshold > 0) {
    mix(context, id, logit, share);
  } else if (scored()) {
    for (int64_t rank = 0; rank < chosen; ++rank) sum += share[id[rank]];
    for (int64_t rank = 0; rank < chosen; ++rank) logit[rank] = normalise ? share[id[rank]] / sum : share[id[rank]];
  } else if (softmax_first) {
    for (int64_t expert = 0; expert < experts; ++expert) share[expert] = logit[expert] - largest;
    sum = exp_sum(context, share);
    float of_chosen = 0;
    for (int64_t rank = 0; rank < chosen; ++rank) {
      logit[rank] = share[id[rank]] / sum;
      of_chosen += logit[rank];
    }
    for (int64_t rank = 0; normalise && rank < chosen; ++rank) logit[rank] /= of_chosen;
  } else {
    for (int64_t rank = 0; rank < chosen; ++rank) share[rank] = logit[id[rank]] - largest;
    kernels.exp(share, share, chosen);
    for (int64_t rank = 0; rank < chosen; ++rank) sum += share[rank];
    for (int64_t rank = 0; rank < chosen; ++rank) logit[rank] = share[rank] / sum;
  }
  std::byte* const target = context.at(this->weights.value) + row * this->weights.stride * elem_bytes(elem);
  kernels.narrow[elem]({logit, target, 1, chosen, chosen, chosen});
}

// Each of `values` becomes its exp; returns their sum.
float MoERouteStep::exp_sum(const RunContext& context, float* values) const {
  context.kernels.exp(values, values, experts);
  float sums[kLanes] = {};
  for (int64_t expert = 0; expert < experts; ++expert) sums[expert % kLanes] += values[expert];
  return tree_sum(sums);
}

// What experts count, and in place of the logits what they are chosen by.
void MoERouteStep::score(const RunContext& context, float* logit, float* share) const {
  float largest = logit[0], sum = 0;
  for (int64_t expert = 1; expert < experts; ++expert)
    if (is_larger(logit[expert], largest)) largest = logit[expert];
  for (int64_t expert = 0; expert < experts; ++expert)
    share[expert] = sigmoid ? -logit[expert] : logit[expert] - largest;
  if (sigmoid)
    context.kernels.exp(share, share, experts);
  else
    sum = exp_sum(context, share);
  for (int64_t expert = 0; expert < experts; ++expert) {
    share[expert] = sigmoid ? 1.0f / (1.0f + share[expert]) : share[expert] / sum;
    logit[expert] = bias == nullptr ? share[expert] : share[expert] + bias[expert];
  }
}

// In place of the first logits, what each of the chosen counts: its softmax over those behind it that are near enough.
void MoERouteStep::mix(const RunContext& context, const int32_t* id, float* logit, float* share) const {
  std::array<float, kMostChosen> counts;
  for (int64_t rank = 0; rank < chosen; ++rank) {
    const float most = logit[id[rank]];
    for (int64_t expert = 0; expert < experts; ++expert) {
      const float below = most - logit[expert], size = std::max(std::fabs(logit[expert]), most);
      share[expert] = below / size > threshold ? -INFINITY : -below;
    }
    for (int64_t before = 0; before < rank; ++before) share[id[before]] = -INFINITY;
    counts[rank] = 1.0f / exp_sum(context, share);
  }
  std::copy_n(counts.begin(), chosen, logit);
}

// By what experts are chosen by: of a group counts the largest, of scores the sum of the two largest.
void MoERouteStep::keep_groups(const float* logit, float* best, int32_t* kept) const {
  const int64_t size = experts / groups;
  for (int64_t group = 0; group < groups; ++group) {
    const float* const own = logit + group * size;
    int64_t first = 0, second = -1;
    for (int64_t i = 1; i < size; ++i) {
      if (is_larger(own[i], own[first])) {
        second = first;
        first = i;
      } else if (second < 0 || is_larger(own[i], own[second])) {
        second = i;
      }
    }
    best[group] = scored() ? own[first] + own[second] : own[first];
  }
  for (int64_t group = 0; group < groups; ++group) {
    int64_t before = 0;
    for (int64_t other = 0; other < groups; ++other)
      before += other < group ? !is_larger(best[group], best[other]) : is_larger(best[other], best[group]);
    kept[group] = before < kept_groups ? 1 : 0;
  }
}

// A pair is a token and one of its experts. Pairs are numbered by token; after grouping, the pairs of one expert follow
// each other.
struct MoELinearStep::Grouped {
  struct Expert {
    int32_t id, first, count;  // its pairs are places [first, first + count)
  };
  int32_t* pair_at;   // [pairs] by place
  int32_t* place_of;  // [pairs] by pair
  Expert* expert;     // [active], ascending
  int64_t active = 0, most = 0;

  Grouped(std::byte* base, int64_t pairs)
      : pair_at(reinterpret_cast<int32_t*>(base)),
        place_of(pair_at + pairs),
        expert(reinterpret_cast<Expert*>(place_of + pairs)) {}

  static int64_t bytes(int64_t pairs, int64_t experts) {
    return PreparedRows::align64(2 * pairs * 4 + experts * int64_t(sizeof(Expert)));
  }
};

int64_t MoELinearStep::shared_bytes() const {
  const int64_t pairs = linear.x.rows * chosen;
  return Grouped::bytes(pairs, experts) + prepared_bytes(linear, pairs);
}

int64_t MoELinearStep::member_bytes() const { return task_bytes(linear, linear.x.rows * chosen); }

void MoELinearStep::run(const RunContext& context) const {
  const int64_t pairs = linear.x.rows * chosen, tokens = context.rows_of(linear.x);
  const Grouped grouped = group(context, tokens);
  const PreparedRows prepared{context.shared_scratch + Grouped::bytes(pairs, experts), pairs, linear.inputs,
                              arranged_kernels(context.kernels, linear, grouped.most)};
  prepare(context, grouped, prepared, tokens);

  const int64_t blocks = (linear.outputs + kBlockOutputs - 1) / kBlockOutputs;
  const int64_t stride = block_bytes(linear.format, linear.inputs);
  const int64_t row_tile = row_tile_of(context, linear);
  const int64_t chunk = chunk_of(context, linear, grouped.most, grouped.active * blocks);
  const int64_t chunks = (blocks + chunk - 1) / chunk;
  context.pool.parallel_runs(grouped.active * chunks, [&](int64_t task, int member) {
    const Grouped::Expert& expert = grouped.expert[task / chunks];
    const int64_t block = task % chunks * chunk, count = std::min(chunk, blocks - block);
    const uint8_t* const first_block = weights + (expert.id * blocks + block) * stride;
    for (int64_t row = 0; row < expert.count; row += row_tile) {
      const int64_t tile = std::min<int64_t>(row_tile, expert.count - row), first = expert.first + row;
      const float* acc = multiply_rows(context, linear, prepared, first_block, first, tile, count, member);
      for (int64_t i = 0; i < tile; ++i)
        finish(context, grouped.pair_at[first + i], expert.id, block, count, acc + i * count * kBlockOutputs);
    }
  });
}

MoELinearStep::Grouped MoELinearStep::group(const RunContext& context, int64_t tokens) const {
  const int64_t pairs = tokens * chosen;
  Grouped grouped(context.shared_scratch, linear.x.rows * chosen);
  const auto* id = in_order ? nullptr : reinterpret_cast<const int32_t*>(context.at(ids.value));  // dense
  const auto expert_of = [&](int64_t pair) { return id == nullptr ? pair % chosen : id[pair]; };
  for (int64_t expert = 0; expert < experts; ++expert) grouped.expert[expert] = {int32_t(expert), 0, 0};
  for (int64_t pair = 0; pair < pairs; ++pair) ++grouped.expert[expert_of(pair)].count;
  int32_t place = 0;
  for (int64_t expert = 0; expert < experts; ++expert) {
    grouped.expert[expert].first = place;
    place += grouped.expert[expert].count;
    grouped.most = std::max<int64_t>(grouped.most, grouped.expert[expert].count);
    grouped.expert[expert].count = 0;
  }
  for (int64_t pair = 0; pair < pairs; ++pair) {
    Grouped::Expert& expert = grouped.expert[expert_of(pair)];
    grouped.place_of[pair] = expert.first + expert.count++;
    grouped.pair_at[grouped.place_of[pair]] = int32_t(pair);
  }
  for (int64_t expert = 0; expert < experts; ++expert) {
    if (grouped.expert[expert].count > 0) grouped.expert[grouped.active++] = grouped.expert[expert];
  }
  return grouped;
}

// A row that all experts of a token read is prepared once and copied to the place where each of them reads it.
void MoELinearStep::prepare(const RunContext& context, const Grouped& grouped, const PreparedRows& prepared,
                            int64_t tokens) const {
  const Rows& x = linear.x;
  for_rows(context, tokens, [&](int64_t begin, int64_t end, int) {
    for (int64_t token = begin; token < end; ++token) {
      const std::byte* source = context.at(x.value) + token * x.stride * elem_bytes(linear.elem);
      const int32_t* const place = grouped.place_of + token * chosen;
      for (int64_t rank = 0; rank < chosen; ++rank) {
        if (x_per_expert()) {
          prepare_row(context, linear, source + rank * linear.inputs * elem_bytes(linear.elem), prepared, place[rank]);
        } else if (rank == 0) {
          prepare_row(context, linear, source, prepared, place[0]);
        } else {
          copy_row(linear, prepared, place[0], place[rank]);
        }
      }
    }
  });
}

void MoELinearStep::finish(const RunContext& context, int64_t pair, int64_t expert, int64_t block, int64_t blocks,
                           const float* acc) const {
  const Rows& y = linear.y;
  const int64_t column = block * kBlockOutputs, columns = std::min(blocks * kBlockOutputs, linear.outputs - column);
  const int64_t size = elem_bytes(linear.elem), width = y.cols / chosen;
  std::byte* const row = context.at(y.value) + (pair / chosen * y.stride + pair % chosen * width) * size;
  const float* own_bias = bias == nullptr ? nullptr : bias + expert * linear.outputs + column;
  if (linear.epilogue == LinearSpec::Epilogue::SiluMul) {
    context.kernels.silu_mul_store[linear.elem]({acc, own_bias, row + column / 2 * size, 1, columns / 2, 0, 0});
  } else {
    context.kernels.store[linear.elem]({acc, own_bias, nullptr, row + column * size, 1, columns, 0, 0, 0});
  }
}

void MoECombineStep::run(const RunContext& context) const {
  const KernelTable& kernels = context.kernels;
  const int64_t size = elem_bytes(elem);
  for_rows(context, context.rows_of(y), [&](int64_t begin, int64_t end, int member) {
    float* const factors = reinterpret_cast<float*>(context.member(member));
    for (int64_t row = begin; row < end; ++row) {
      kernels.widen[elem]({context.at(this->weights.value) + row * this->weights.stride * size, factors, 1, chosen,
                           chosen, chosen, 1.0f});
      const std::byte* add = adds ? context.at(residual.value) + row * residual.stride * size : nullptr;
      kernels.weighted_sum[elem]({context.at(x.value) + row * x.stride * size, factors, add,
                                  context.at(y.value) + row * y.stride * size, chosen, y.cols});
    }
  });
}

}  // namespace tcim_lite::cpu
