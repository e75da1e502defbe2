#include <cmath>

#include "backends/cpu/reference/functions.h"

namespace tcim_lite::cpu {
namespace {

template <typename Row>
bool attention_block(const AttentionBlockArgs& args) {
  const int64_t dim = args.head_dim;
  bool finite = true;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* q = args.q + row * dim;
    float* o = args.o + row * dim;
    const int64_t begin = begin_of(args, row), keys = args.keys[row];
    float* p = args.scores;
    float m = -INFINITY;
    for (int64_t key = begin; key < keys; ++key) {
      float partial[16] = {};
      const void* k = Row::at(args.k, key * dim);
      for (int64_t d = 0; d < dim; ++d) partial[d % 16] = std::fmaf(q[d], Row::load(k, d), partial[d % 16]);
      p[key] = tree_sum(partial);
      if (row == 0 && !std::isfinite(p[key])) finite = false;
      if (args.softcap > 0) p[key] = args.softcap * tanh(Lane{p[key]}).v;
      if (args.mask != nullptr) p[key] += args.mask[key];
      if (p[key] > m) m = p[key];
    }
    m += 0.0f;  // -0 becomes +0: which zero a maximum picks depends on the order
    float sums[16] = {};
    for (int64_t key = begin; key < keys; ++key) {
      p[key] = exp_ref(p[key] - m);
      sums[key % 16] += p[key];
    }
    for (int64_t d = 0; d < dim; ++d) o[d] = 0.0f;
    for (int64_t key = begin; key < keys; ++key) {
      const void* v = Row::at(args.v, key * dim);
      for (int64_t d = 0; d < dim; ++d) o[d] = std::fmaf(p[key], Row::load(v, d), o[d]);
    }
    for (int64_t d = 0; row == 0 && d < dim; ++d) finite = finite && std::isfinite(o[d]);
    args.m[row] = m;
    args.l[row] = tree_sum(sums);
  }
  return finite;
}

void attention_merge(const AttentionMergeArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float m = args.m[row] > args.running_m[row] ? args.m[row] : args.running_m[row];
    const float a = exp_ref(args.running_m[row] - m);
    const float b = exp_ref(args.m[row] - m);
    args.running_m[row] = m;
    args.running_l[row] = std::fmaf(args.running_l[row], a, args.l[row] * b);
    float* running_o = args.running_o + row * args.head_dim;
    const float* o = args.o + row * args.head_dim;
    for (int64_t d = 0; d < args.head_dim; ++d) running_o[d] = std::fmaf(running_o[d], a, o[d] * b);
  }
}

template <typename Row>
void attention_finish(const AttentionFinishArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* o = args.o + row * args.head_dim;
    void* y = Row::at(args.y, row * args.y_stride);
    for (int64_t d = 0; d < args.head_dim; ++d) Row::store(y, d, o[d] / args.l[row]);
  }
}

}  // namespace

void use_attention_ref(KernelTable& table) {
  enter(table.attention_block, attention_block<F16Row>, attention_block<F32Row>);
  enter(table.attention_finish, attention_finish<F16Row>, attention_finish<F32Row>);
  table.attention_merge = attention_merge;
}

}  // namespace tcim_lite::cpu
