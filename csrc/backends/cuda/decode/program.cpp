#include "backends/cuda/decode/program.h"

#include <algorithm>
#include <cstring>
#include <variant>

#include "backends/cuda/decode/handovers.h"

namespace tcim_lite::cuda::decode {
namespace {

constexpr int kFewestPhases = 3;
constexpr uint64_t kAlignment = 256;

// Outputs of the block that has most of them where tiles are of 16 * blocks.
int most_of_a_block(int outputs, int blocks, int multiprocessors) {
  const int tiles = (outputs + 16 * blocks - 1) / (16 * blocks);
  return (tiles + multiprocessors - 1) / multiprocessors * 16 * blocks;
}

// Tiles of two blocks of 16 outputs need half as many meetings of the warps.
bool wants_two_blocks(const LinearSpec& spec, int multiprocessors) {
  if (spec.epilogue == LinearSpec::Epilogue::SiluMul) return true;
  const int outputs = int(spec.outputs);
  return outputs % 32 == 0 &&
         most_of_a_block(outputs, 2, multiprocessors) <= most_of_a_block(outputs, 1, multiprocessors);
}

}  // namespace

// Adds steps until one does not fit. Each add() leaves the program as it was where it returns false.
class ProgramBuilder {
 public:
  ProgramBuilder(const Plan& plan, int multiprocessors) : plan_(plan), multiprocessors_(multiprocessors) {}

  std::optional<Program> build(size_t first) {
    program_.first_ = program_.end_ = first;
    // A step takes two phases at most.
    while (program_.end_ < plan_.steps.size() && args_.count + 2 <= kMostPhases &&
           std::visit([&](const auto& spec) { return add(spec); }, plan_.steps[program_.end_]))
      ++program_.end_;
    if (args_.count < kFewestPhases || program_.format_ == WeightFormat::Dense) return std::nullopt;
    plan_handovers(args_, flows_);
    own(args_.barrier, 2 * sizeof(unsigned));
    if (args_.rows == 1) own(args_.mail, kMailBytes);
    if (args_.slots > 0) {
      own(args_.arrived, uint64_t(args_.rows) * uint64_t(args_.kv_heads) * 4);
      own(args_.partial, uint64_t(multiprocessors_) * uint64_t(args_.heads_per_kv) * (kHeadDim + 2) * 4);
    }
    return std::move(program_);
  }

 private:
  template <typename Spec>
  bool add(const Spec&) {
    return false;  // no phase does it
  }

  bool add(const LinearSpec& spec) {
    const bool known = spec.format == WeightFormat::LinearW4 || spec.format == WeightFormat::LinearW8 ||
                       spec.format == WeightFormat::LinearF16;
    if (!known || spec.elem != kF16 || (is_quantized(spec.format) && !spec.quantized())) return false;
    if (spec.hidden_exponent) return false;
    if (program_.format_ != WeightFormat::Dense && spec.format != program_.format_) return false;
    if (spec.inputs % 64 != 0 || spec.inputs > kMostInputs) return false;
    if (spec.epilogue == LinearSpec::Epilogue::SiluMul && spec.outputs % 32 != 0) return false;
    if (!is_read_by_pieces(spec.x) || !takes_rows(spec.x)) return false;
    program_.format_ = spec.format;

    // Several rows of a long x are quantised once, not by each block.
    const bool apart =
        args_.rows > 1 && is_quantized(spec.format) && spec.norm_id == kNoValue && spec.inputs >= kManyInputs;
    if (apart) {
      Phase& phase = next(Phase::Kind::Quantize, spec.x);
      phase.quantize = {nullptr, nullptr, int(spec.x.stride), int(spec.inputs)};
      refer(phase.quantize.x, spec.x.value, true);
      own_codes(phase.quantize.codes);
    }
    Phase& phase = next(Phase::Kind::Linear, spec.y);
    LinearPhase& linear = phase.linear = {};
    refer(linear.x, spec.x.value, true);
    if (apart) own_codes(linear.codes);
    refer(linear.weights, spec.weights_id);
    refer(linear.norm_weight, spec.norm_id);
    refer(linear.bias, spec.bias_id);
    refer(linear.y, spec.y.value);
    if (spec.epilogue == LinearSpec::Epilogue::AddResidual) refer(linear.residual, spec.residual.value);
    linear.epsilon = spec.norm_epsilon;
    linear.inverse_inputs = 1.0f / float(spec.inputs);
    linear.x_stride = int(spec.x.stride);
    linear.residual_stride = int(spec.residual.stride);
    linear.y_stride = int(spec.y.stride);
    linear.inputs = int(spec.inputs);
    linear.outputs = int(spec.outputs);
    linear.epilogue = int8_t(spec.epilogue);
    linear.blocks = wants_two_blocks(spec, multiprocessors_) ? 2 : 1;
    linear.tiles = (linear.outputs + 16 * linear.blocks - 1) / (16 * linear.blocks);

    flows_.back().reads = {range_of(spec.x)};
    if (spec.epilogue == LinearSpec::Epilogue::AddResidual) flows_.back().residual = range_of(spec.residual);
    return true;
  }

  bool add(const HeadsAttentionSpec& spec) {
    const AttentionSpec& a = spec.attention;
    const HeadChainSpec &q = spec.of_q(), &k = spec.of_k(), &v = spec.of_v();
    if (a.elem != kF16 || a.cache_elem != kF16 || (q.cos_id != kNoValue && q.table_elem != kF16)) return false;
    if (a.sinks_id != kNoValue || !a.masks.empty()) return false;
    if (a.window < a.context) return false;  // parts of a KV head are taken by the number of the block alone
    if (a.head_dim != kHeadDim || a.heads_per_kv() > kMostHeadsPerKv) return false;
    if (a.q.rows * a.kv_heads > multiprocessors_ || a.k.size() > size_t(kMostRows)) return false;
    if (q.x.stride != k.x.stride || q.x.stride != v.x.stride) return false;
    for (const HeadChainSpec* chain : {&q, &k, &v}) {
      if (!is_read_by_pieces(chain->x)) return false;
    }
    if (caches_ + 2 * a.k.size() > size_t(kMostCaches) || !has_the_same_shape(spec) || !takes_rows(a.q)) return false;
    if (shared_ == nullptr) share(spec);

    Phase& phase = next(Phase::Kind::Attention, a.y);
    AttentionPhase& attention = phase.attention = {};
    refer(attention.q, q.x.value, true);
    refer(attention.k, k.x.value, true);
    refer(attention.v, v.x.value, true);
    refer(attention.q_norm, q.norm_id);
    refer(attention.k_norm, k.norm_id);
    refer(attention.y, a.y.value);
    attention.x_stride = int(q.x.stride);
    attention.y_stride = int(a.y.stride);
    attention.q_epsilon = q.norm_epsilon;
    attention.k_epsilon = k.norm_epsilon;
    attention.scale = a.scale;
    attention.caches = int(caches_);
    for (size_t slot = 0; slot < a.k.size(); ++slot) {
      refer(args_.caches[caches_++], a.k[slot], true);
      refer(args_.caches[caches_++], a.v[slot], true);
    }
    flows_.back().reads = {range_of(q.x), range_of(k.x), range_of(v.x)};
    return true;
  }

  bool add(const ElementwiseSpec& spec) {
    if (!add_elementwise(spec.op, spec.elem, spec.a, spec.y)) return false;
    ElementwisePhase& phase = args_.phases[args_.count - 1].elementwise;
    refer(phase.b, spec.b.value);
    phase.b_stride = int(spec.b.stride);
    flows_.back().reads.push_back(range_of(spec.b));
    return true;
  }
  bool add(const SiluMulSpec& spec) {
    return !spec.clamped() && add_elementwise(kElementwiseOps, spec.elem, spec.x, spec.y);
  }
  bool add_elementwise(int op, Elem elem, const Rows& a, const Rows& y) {
    if (elem != kF16 || !takes_rows(y)) return false;
    Phase& phase = next(Phase::Kind::Elementwise, y);
    phase.elementwise = {op, nullptr, nullptr, nullptr, int(a.stride), 0, int(y.stride), int(y.cols)};
    refer(phase.elementwise.a, a.value);
    refer(phase.elementwise.y, y.value);
    flows_.back().reads = {range_of(a)};
    flows_.back().mails = false;
    return true;
  }

  // All attention of a program has one shape, the same lengths and the same tables.
  bool has_the_same_shape(const HeadsAttentionSpec& spec) const {
    if (shared_ == nullptr) return true;
    const AttentionSpec &a = spec.attention, &b = shared_->attention;
    const HeadChainSpec &q = spec.of_q(), &other = shared_->of_q();
    return a.lengths == b.lengths && a.q.slot_rows == b.q.slot_rows && a.heads_per_kv() == b.heads_per_kv() &&
           a.kv_heads == b.kv_heads && a.context == b.context && q.table_rows == other.table_rows &&
           q.cos_id == other.cos_id && q.sin_id == other.sin_id;
  }
  void share(const HeadsAttentionSpec& spec) {
    shared_ = &spec;
    const AttentionSpec& a = spec.attention;
    args_.slots = int(a.k.size());
    args_.slot_rows = int(a.q.slot_rows);
    args_.heads_per_kv = int(a.heads_per_kv());
    args_.kv_heads = int(a.kv_heads);
    args_.splits = std::max(1, multiprocessors_ / (args_.slots * args_.slot_rows * args_.kv_heads));
    args_.context = int(a.context);
    args_.table_rows = int(spec.of_q().table_rows);
    refer(args_.cos, spec.of_q().cos_id);
    refer(args_.sin, spec.of_q().sin_id);
    for (size_t slot = 0; slot < a.lengths.size(); ++slot) {
      refer(args_.valid[slot], a.lengths[slot].valid);
      refer(args_.current[slot], a.lengths[slot].current);
    }
  }

  bool takes_rows(const Rows& x) {
    if (args_.count == 0) args_.rows = int(x.rows);
    return x.rows == args_.rows && x.rows <= kMostRows;
  }
  // In pieces of 16 bytes.
  bool is_read_by_pieces(const Rows& x) const { return x.stride % 8 == 0 && plan_.storage[x.value].offset % 16 == 0; }
  Range range_of(const Rows& x) const {
    const Plan::Storage& storage = plan_.storage[x.value];
    return {uint32_t(storage.place) + 4 * storage.port, storage.offset, x.cols};
  }

  // A phase that makes y.
  Phase& next(Phase::Kind kind, const Rows& y) {
    Phase& phase = args_.phases[args_.count++];
    phase.kind = kind;
    phase.keeps = plan_.storage[y.value].place == Plan::Place::Output;
    flows_.push_back({{}, {}, range_of(y)});
    return phase;
  }

  template <typename T>
  void refer(T*& pointer, uint32_t value, bool aligned = false) {
    pointer = nullptr;
    if (value != kNoValue) program_.operands_.push_back({&pointer, value, aligned});
  }
  uint64_t reserve(uint64_t bytes) {
    const uint64_t offset = program_.scratch_bytes_;
    program_.scratch_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  template <typename T>
  void own(T*& pointer, uint64_t bytes) {
    program_.own_.push_back({&pointer, reserve(bytes)});
  }
  // One place for the codes of all phases.
  template <typename T>
  void own_codes(T*& pointer) {
    if (!codes_) codes_ = reserve(kMostCodesBytes);
    program_.own_.push_back({&pointer, *codes_});
  }

  const Plan& plan_;
  const int multiprocessors_;
  Program program_;
  ProgramArgs& args_ = *program_.args_;
  std::vector<Flow> flows_;  // by phase
  size_t caches_ = 0;
  const HeadsAttentionSpec* shared_ = nullptr;  // the first attention
  std::optional<uint64_t> codes_;
};

std::optional<Program> Program::plan(const Plan& plan, size_t first, int multiprocessors) {
  return ProgramBuilder(plan, multiprocessors).build(first);
}

bool Program::bind(std::span<std::byte* const> values, std::byte* scratch, const int* refused, int* odd) {
  for (const Operand& operand : operands_) {
    std::byte* const address = values[operand.value];
    if (operand.aligned && reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
    std::memcpy(operand.pointer, &address, sizeof(address));
  }
  for (const OwnMemory& own : own_) {
    std::byte* const address = scratch + own.offset;
    std::memcpy(own.pointer, &address, sizeof(address));
  }
  args_->refused = refused;
  args_->odd = odd;
  return true;
}

}  // namespace tcim_lite::cuda::decode
