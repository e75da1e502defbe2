// A model in parts gives what it gives in one piece, bit for bit; parts that do not fit together are refused.
#include "graph/parts.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "backends/backend.h"
#include "base/error.h"
#include "check.h"
#include "graph_maker.h"

using namespace tcim_lite;
using tcim_lite::test::GraphMaker;

namespace {

constexpr int64_t kHidden = 128, kInner = 128;

// An MLP block. Of a part: `inner` and `hidden` columns of its own, from these offsets.
struct Columns {
  int64_t inner = kInner, inner_offset = 0;
  int64_t hidden = kHidden, hidden_offset = 0;
  bool is_whole() const { return inner == kInner; }
};

void build_block(GraphMaker& maker, WeightFormat format, int64_t tokens, const Columns& columns) {
  const uint32_t x = maker.input({1, tokens, kHidden});
  maker.graph().live_rows = maker.length();
  uint32_t h = maker.silu_mul(maker.linear(maker.rms_norm(x), 2 * columns.inner, format));
  if (!columns.is_whole()) h = maker.all_gather(h, columns.inner_offset, kInner);
  uint32_t y = maker.linear(h, columns.hidden, format);
  if (!columns.is_whole()) y = maker.all_gather(y, columns.hidden_offset, kHidden);
  maker.graph().outputs = {maker.add(x, y)};
}

// The rows of the whole block's weights that belong to the part: packed blocks of 16 outputs lie one after the other.
std::vector<WeightBytes> share(const GraphMaker& whole, WeightFormat format, const Columns& columns) {
  std::vector<WeightBytes> weights = whole.weights();  // norm, gate and up, down
  const auto rows = [&](WeightBytes bytes, int64_t inputs, int64_t begin, int64_t count) {
    const auto block = uint64_t(block_bytes(format, inputs)) / kBlockOutputs;
    return bytes.subspan(uint64_t(begin) * block, uint64_t(count) * block);
  };
  weights[1] = rows(weights[1], kHidden, 2 * columns.inner_offset, 2 * columns.inner);
  weights[2] = rows(weights[2], kInner, columns.hidden_offset, columns.hidden);
  return weights;
}

struct Memory {
  explicit Memory(int64_t bytes)
      : x(cpu_backend().allocate(0, bytes, Placing::NearDevice)),
        y(cpu_backend().allocate(0, bytes, Placing::NearDevice)),
        live(cpu_backend().allocate(0, 4, Placing::NearDevice)) {
    std::memset(y->data(), 0xff, y->bytes());
  }
  PartMemory ports() const { return {{x->data(), live->data()}, {y->data()}}; }
  std::shared_ptr<DeviceMemory> x, y, live;
};

void check_equal(DType dtype, WeightFormat format, int64_t tokens, int32_t live) {
  GraphMaker whole(dtype, 5);
  build_block(whole, format, tokens, {});
  std::vector<Part> parts;
  std::vector<Graph> graphs;
  for (const Columns& columns : {Columns{48, 0, 80, 0}, Columns{32, 48, 16, 80}, Columns{48, 80, 32, 96}}) {
    GraphMaker part(dtype);
    build_block(part, format, tokens, columns);
    validate(part.graph());
    graphs.push_back(part.graph());
    parts.push_back({std::make_shared<const Graph>(part.graph()), share(whole, format, columns)});
  }
  validate_parts(graphs, {{kWhole, kWhole}, {kWhole}});

  const int64_t bytes = tokens * kHidden * size_of(dtype);
  Memory one(bytes);
  std::vector<Memory> each(parts.size(), one);
  for (Memory& memory : each) memory = Memory(bytes);
  std::mt19937 random(3);
  for (int64_t i = 0; i < tokens * kHidden; ++i) {
    const float number = std::uniform_real_distribution<float>(-2, 2)(random);
    const uint16_t half = float_to_half(number);
    std::memcpy(one.x->data() + i * size_of(dtype), dtype == DType::Float16 ? static_cast<const void*>(&half) : &number,
                size_t(size_of(dtype)));
  }
  std::memcpy(one.live->data(), &live, 4);
  std::vector<PartMemory> ports;
  for (Memory& memory : each) {
    std::memcpy(memory.x->data(), one.x->data(), one.x->bytes());
    std::memcpy(memory.live->data(), &live, 4);
    ports.push_back(memory.ports());
  }
  const PartMemory single = one.ports();
  cpu_backend().compile({{std::make_shared<const Graph>(whole.graph()), whole.weights()}})->run({&single, 1});
  cpu_backend().compile(std::move(parts))->run(ports);
  for (const Memory& memory : each) CHECK_EQ(std::memcmp(memory.y->data(), one.y->data(), one.y->bytes()), 0);
}

void check_refused(const std::string& words, const std::function<void(std::vector<Graph>&, Split&)>& spoil) {
  std::vector<Graph> graphs;
  for (const Columns& columns : {Columns{64, 0, 64, 0}, Columns{64, 64, 64, 64}}) {
    GraphMaker part(DType::Float32);
    build_block(part, WeightFormat::LinearF32, 4, columns);
    graphs.push_back(part.graph());
  }
  Split split{{kWhole, kWhole}, {kWhole}};
  validate_parts(graphs, split);
  spoil(graphs, split);
  CHECK_ERROR(validate_parts(graphs, split), words);
}

// Eight columns of `x`, or of an input without live rows, as one half of what is gathered.
Part rows_part(bool live, int64_t offset) {
  GraphMaker part(DType::Float32);
  const uint32_t x = part.input({1, 6, 8}), dense = part.input({6, 8});
  part.graph().live_rows = part.length();
  const uint32_t own = live ? part.reshape(x, {6, 8}) : part.add(dense, dense);
  part.graph().outputs = {part.all_gather(own, offset, 16)};
  validate(part.graph());
  return {std::make_shared<const Graph>(part.graph()), part.weights()};
}

// A device with only live rows would leave the other with rows that nobody computed.
void check_equal_rows_are_exchanged() {
  CHECK(cpu_backend().compile({rows_part(true, 0), rows_part(true, 8)}) != nullptr);
  CHECK_ERROR(cpu_backend().compile({rows_part(true, 0), rows_part(false, 8)}), "exchanges equal rows");
  CHECK_ERROR(cpu_backend().compile({rows_part(false, 0), rows_part(true, 8)}), "exchanges equal rows");
}

Op& gather_of(Graph& graph, size_t index) {
  for (Op& op : graph.ops) {
    if (op.kind == OpKind::AllGather && index-- == 0) return op;
  }
  std::abort();
}

// Destroyed after main, as what a program keeps in static objects, which may call the runtime.
struct AtExit {
  AtExit() = default;
  ~AtExit() {
    if (cpu_backend().allocate(0, 64, Placing::NearDevice) == nullptr) std::abort();
  }
} at_exit;

}  // namespace

int main() {
  for (const int64_t tokens : {int64_t{1}, int64_t{5}, int64_t{40}}) {
    for (const WeightFormat format : {WeightFormat::LinearW4, WeightFormat::LinearW8, WeightFormat::LinearF16}) {
      check_equal(DType::Float16, format, tokens, int32_t((tokens + 1) / 2));
    }
    check_equal(DType::Float32, WeightFormat::LinearF32, tokens, int32_t(tokens));
  }

  check_equal_rows_are_exchanged();
  check_refused("axes of inputs", [](auto&, Split& split) { split.inputs.pop_back(); });
  check_refused("is split on axis 3", [](auto&, Split& split) { split.inputs[0] = 3; });
  check_refused("is split on axis -2", [](auto&, Split& split) { split.outputs[0] = -2; });
  check_refused("is int32 and split", [](auto&, Split& split) { split.inputs[1] = 0; });
  check_refused("part 1 has 0 outputs", [](auto& parts, Split&) { parts[1].outputs.clear(); });
  check_refused("'other' in part 1", [](auto& parts, Split&) { parts[1].values[0].name = "other"; });
  check_refused("parts may differ only along", [](auto& parts, Split&) { parts[1].values[0].shape[2] = 64; });
  check_refused("live_rows of part 1", [](auto& parts, Split&) { parts[1].live_rows = kNoValue; });
  check_refused("has live rows and is split on axis 1", [](auto&, Split& split) { split.inputs[0] = 1; });
  check_refused("has live rows and is split on axis 0", [](auto&, Split& split) { split.outputs[0] = 0; });
  check_refused("part 1 has 1 AllGather", [](auto& parts, Split&) { gather_of(parts[1], 1).kind = OpKind::Reshape; });
  check_refused("begins at column 0, expected 64",
                [](auto& parts, Split&) { gather_of(parts[1], 0).attributes[0].second = int64_t{0}; });
  check_refused("the parts give 96 columns of 128",
                [](auto& parts, Split&) { parts[1].values[gather_of(parts[1], 1).inputs[0]].shape[2] = 32; });
  return check_result();
}
