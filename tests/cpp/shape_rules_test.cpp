// What validate() refuses, op by op: the golden graph with every op is legal, each case breaks it in one place.
#include <functional>
#include <iostream>

#include "check.h"
#include "graph/graph.h"
#include "hmm/reader.h"

using namespace tcim_lite;

namespace {

using Change = std::function<void(Graph&)>;

Graph golden() { return hmm::parse(hmm::map_file(TCIM_LITE_TEST_DATA "/hmm/every_op.hmm")->span(), "golden").graph(); }

Value& named(Graph& graph, std::string_view name) {
  for (Value& value : graph.values) {
    if (value.name == name) return value;
  }
  std::cerr << "no value " << name << "\n";
  std::abort();
}

uint32_t id(Graph& graph, std::string_view name) { return uint32_t(&named(graph, name) - graph.values.data()); }

Op& first(Graph& graph, OpKind kind) {
  for (Op& op : graph.ops) {
    if (op.kind == kind) return op;
  }
  std::abort();
}

Value& output_of(Graph& graph, OpKind kind) { return graph.values[first(graph, kind).outputs[0]]; }

void refuses(const char* text, const Change& change) {
  Graph graph = golden();
  change(graph);
  CHECK_ERROR(validate(graph), text);
}

Change shape(OpKind kind, Shape shape) {
  return [=](Graph& graph) { output_of(graph, kind).shape = shape; };
}

Change shape(std::string_view name, Shape shape) {
  return [=](Graph& graph) { named(graph, name).shape = shape; };
}

Change inputs(OpKind kind, size_t count) {
  return [=](Graph& graph) { first(graph, kind).inputs.resize(count); };
}

TEST(every_op_has_an_arity) {
  for (const auto& [kind, text] : std::initializer_list<std::pair<OpKind, const char*>>{
           {OpKind::Linear, "(Linear): has 1 inputs, expected 2 to 3"},
           {OpKind::RMSNorm, "(RMSNorm): has 1 inputs, expected 2"},
           {OpKind::Rope, "(Rope): has 1 inputs"},
           {OpKind::KVcache, "(KVcache): has 1 inputs, expected 1 and 3 for each of 1 slots"},
           {OpKind::FlashAttention, "(FlashAttention): has 1 inputs, expected 1 and 4 for each of 1 slots"},
           {OpKind::BatchGather, "(BatchGather): has 1 inputs, expected 2"},
           {OpKind::Add, "(Add): has 1 inputs, expected 2"}})
    refuses(text, inputs(kind, 1));
  for (OpKind kind : {OpKind::SiluMul, OpKind::Slice, OpKind::Reshape, OpKind::KVcache, OpKind::FlashAttention})
    refuses("has 0 inputs", [=](Graph& graph) { first(graph, kind).inputs.clear(); });
  for (OpKind kind : {OpKind::Linear, OpKind::Rope, OpKind::KVcache, OpKind::FlashAttention, OpKind::Reshape})
    refuses("has 0 outputs", [=](Graph& graph) { first(graph, kind).outputs.clear(); });
}

TEST(every_op_checks_its_output) {
  refuses("(Linear): 'Linear_1' is float16 [1, 4, 64], expected float16 [1, 4, 128]",
          shape(OpKind::Linear, {1, 4, 64}));
  refuses("(RMSNorm): 'RMSNorm_0'", shape(OpKind::RMSNorm, {1, 4, 128}));
  refuses("(Rope): 'Rope_8'", shape(OpKind::Rope, {1, 4, 2, 16}));
  refuses("(KVcache): 'KVcache_10'", shape(OpKind::KVcache, {1, 2, 16, 16}));
  refuses("(FlashAttention): 'FlashAttention_12'", shape(OpKind::FlashAttention, {1, 4, 32}));
  refuses("(BatchGather): 'BatchGather_18'", shape(OpKind::BatchGather, {1, 4, 64}));
  refuses("(SiluMul): 'SiluMul_15'", shape(OpKind::SiluMul, {1, 4, 128}));
  refuses("(Add): 'Add_13'", shape(OpKind::Add, {1, 64, 4}));
  refuses("(Slice): 'Slice_2'", shape(OpKind::Slice, {1, 4, 32}));
  refuses("same dtype and number of elements", shape(OpKind::Reshape, {1, 4, 4, 15}));
}

// Every line of ops.def that is elementwise, in the place of an Add.
TEST(elementwise_ops_take_two_operands_of_one_shape) {
  constexpr OpKind kKinds[] = {
#define TCIM_LITE_ELEMENTWISE(name, version, meaning) OpKind::name,
#include "graph/ops.def"
  };
  for (OpKind kind : kKinds) {
    const auto refused = [&](std::string_view text, const Change& change) {
      refuses(concat("(", name_of(kind), "): ", text).c_str(), [&](Graph& graph) {
        Op& op = first(graph, OpKind::Add);
        op.kind = kind;
        change(graph);
      });
    };
    Graph graph = golden();
    first(graph, OpKind::Add).kind = kind;
    validate(graph);
    refused("has 1 inputs, expected 2", [=](Graph& graph) { first(graph, kind).inputs.pop_back(); });
    refused("has 0 outputs, expected 1", [=](Graph& graph) { first(graph, kind).outputs.clear(); });
    refused("does not know the attribute 'alpha'",
            [=](Graph& graph) { first(graph, kind).attributes.emplace_back("alpha", 1.0); });
    refused("'Add_13' is float16 [1, 64, 4], expected float16 [1, 4, 64]",
            [=](Graph& graph) { output_of(graph, kind).shape = {1, 64, 4}; });
    refused("'Slice_2' is float16 [1, 4, 64], expected float16 [1, 4, 128]",
            [=](Graph& graph) { first(graph, kind).inputs = {id(graph, "Linear_1"), id(graph, "Slice_2")}; });
    refused("'cos' is a weight", [=](Graph& graph) { first(graph, kind).inputs[1] = id(graph, "cos"); });
  }
}

TEST(activations_of_a_linear) {
  const auto with = [](const char* weight, AttributeValue value) {
    return [=](Graph& graph) {
      for (Op& op : graph.ops) {
        if (op.kind == OpKind::Linear && op.inputs[1] == id(graph, weight))
          op.attributes.emplace_back("activations", value);
      }
    };
  };
  for (const char* quantised : {"qkv", "gate_up"}) {
    Graph graph = golden();
    with(quantised, "hidden_exponent")(graph);
    validate(graph);
  }
  refuses("(Linear): attribute 'activations' is 'a9', which this version does not know", with("qkv", "a9"));
  refuses("(Linear): attribute 'activations' is no string", with("qkv", int64_t{1}));
  refuses("the weight 'down', linear_f16 float16 [64, 64]; expected float16 activations and a weight linear_w4",
          with("down", "hidden_exponent"));
  refuses("does not know the attribute 'activation'",
          [](Graph& graph) { first(graph, OpKind::Linear).attributes.emplace_back("activation", "hidden_exponent"); });
}

TEST(tensors_share_a_dtype) {
  refuses("the graph's other tensors are float16", [](Graph& graph) {
    const uint32_t other = uint32_t(graph.values.size());
    graph.values.push_back({"other", ValueKind::Input, DType::Float32, WeightFormat::Dense, {64}, kNoValue});
    graph.inputs.push_back(other);
    graph.values.push_back({"extra", ValueKind::Intermediate, DType::Float32, WeightFormat::Dense, {64}, kNoValue});
    graph.ops.push_back({OpKind::Add, {other, other}, {other + 1}, {}});
  });
  refuses("expected float16 or float32", [](Graph& graph) { named(graph, "input_1").dtype = DType::Int8; });
}

TEST(constants_are_weights_and_activations_are_not) {
  for (const char* name : {"bias", "norm", "cos", "sin"}) {
    refuses("expected a weight", [=](Graph& graph) {
      named(graph, name).kind = ValueKind::Input;
      named(graph, name).weight = kNoValue;
      graph.inputs.push_back(id(graph, name));
    });
  }
  for (OpKind kind : {OpKind::Linear, OpKind::RMSNorm, OpKind::Slice, OpKind::Reshape, OpKind::Add, OpKind::SiluMul}) {
    refuses("is a weight, expected an input or the result of an op",
            [=](Graph& graph) { first(graph, kind).inputs[0] = id(graph, "cos"); });
  }
  refuses("is a weight, expected an input or the result of an op",
          [](Graph& graph) { first(graph, OpKind::Add).inputs[1] = id(graph, "cos"); });
}

TEST(linear) {
  refuses("the last extents must agree", shape("qkv", {128, 128}));
  refuses("expected a weight in a packed format", [](Graph& graph) {
    named(graph, "qkv").format = WeightFormat::Dense;
    named(graph, "qkv").dtype = DType::Float16;
  });
  refuses("K to be a multiple of 64", shape("gate_up", {128, 32}));
  refuses("expected [N, K] or [E, N, K]", shape("gate_up", {128, 64, 1, 64}));
  refuses("(Linear): 'gate_up' is linear_w8 uint8 [1, 128, 64], expected rank 2", shape("gate_up", {1, 128, 64}));
  refuses("format linear_w4 and dtype int8, expected uint8",
          [](Graph& graph) { named(graph, "qkv").dtype = DType::Int8; });
  refuses("'bias' is float32 [63], expected float32 [64]", shape("bias", {63}));
}

TEST(norm_rope_and_lengths) {
  refuses("'norm' is float32 [63]", shape("norm", {63}));
  refuses("'epsilon' is missing", [](Graph& graph) { first(graph, OpKind::RMSNorm).attributes.clear(); });
  refuses("'epsilon' is -1", [](Graph& graph) { first(graph, OpKind::RMSNorm).attributes = {{"epsilon", -1.0}}; });
  refuses("'epsilon' is a string",
          [](Graph& graph) { first(graph, OpKind::RMSNorm).attributes = {{"epsilon", std::string("x")}}; });
  refuses("does not know the attribute 'eps'",
          [](Graph& graph) { first(graph, OpKind::RMSNorm).attributes.emplace_back("eps", 1.0); });
  refuses("'cos' is float16 [32, 4]", shape("cos", {32, 4}));
  refuses("'sin' is float16 [16, 8]", shape("sin", {16, 8}));
  refuses("expected an input int32 [1]", [](Graph& graph) { named(graph, "valid_length").dtype = DType::UInt32; });
  refuses("'positions' is 'counted', which this version does not know",
          [](Graph& graph) { first(graph, OpKind::Rope).attributes = {{"positions", std::string("counted")}}; });
  refuses("expected an input int32 [1, 4]",
          [](Graph& graph) { first(graph, OpKind::Rope).attributes = {{"positions", std::string("given")}}; });
  refuses("'tables' is 'given', which this version does not know",
          [](Graph& graph) { first(graph, OpKind::Rope).attributes = {{"tables", std::string("given")}}; });
  refuses("has 4 inputs, expected 3",
          [](Graph& graph) { first(graph, OpKind::Rope).attributes = {{"tables", std::string("computed")}}; });
  refuses("'cos' is a weight", [](Graph& graph) {
    Op& rope = first(graph, OpKind::Rope);
    rope.attributes = {{"tables", std::string("computed")}};
    rope.inputs.pop_back();
  });
  for (const int64_t dim : {0, 3, 18}) {
    refuses("expected an even number of them",
            [=](Graph& graph) { first(graph, OpKind::Rope).attributes = {{"rotary_dim", dim}}; });
  }
  refuses("expected float16 [32, 4]",
          [](Graph& graph) { first(graph, OpKind::Rope).attributes = {{"rotary_dim", int64_t{8}}}; });
  refuses("expected an input int32 [1]", shape("valid_length", {1, 4}));
  refuses("expected an input int32 [1]", [](Graph& graph) { first(graph, OpKind::BatchGather).inputs[1] = 0; });
}

TEST(caches) {
  const char* cache = "model_layers_0_self_attn_kcache_input";
  refuses("its context length is 64 and elsewhere 32", shape(cache, {1, 2, 64, 16}));
  refuses("expected float16 [1, 2, 32, 16]", shape(cache, {1, 4, 32, 16}));
  refuses("expected a state", [=](Graph& graph) { named(graph, cache).kind = ValueKind::Input; });
  refuses("which it does not update", [=](Graph& graph) { first(graph, OpKind::Slice).inputs[0] = id(graph, cache); });
  refuses("which is already updated", [=](Graph& graph) {
    for (Op& op : graph.ops) {
      if (op.kind == OpKind::KVcache) op.inputs[1] = id(graph, cache);
    }
  });
  refuses("is a state, which is updated in place",
          [](Graph& graph) { graph.outputs.push_back(first(graph, OpKind::KVcache).outputs[0]); });
  refuses("expected an updated state",
          [](Graph& graph) { first(graph, OpKind::FlashAttention).inputs[1] = first(graph, OpKind::Rope).outputs[0]; });
  refuses("expected a multiple of the 2 of", [](Graph& graph) {
    named(graph, "Slice_2").shape = {1, 4, 48};
    first(graph, OpKind::Slice).attributes = {{"start", int64_t{0}}, {"stop", int64_t{48}}};
    named(graph, "Reshape_3").shape = named(graph, "Rope_8").shape = {1, 4, 3, 16};
  });
  refuses("'window' is 0, expected 1 or more",
          [](Graph& graph) { first(graph, OpKind::FlashAttention).attributes = {{"window", int64_t{0}}}; });
  refuses("'window' is not a whole number",
          [](Graph& graph) { first(graph, OpKind::FlashAttention).attributes = {{"window", 4.0}}; });
  refuses("'softcap' is 0", [](Graph& graph) { first(graph, OpKind::FlashAttention).attributes = {{"softcap", 0.0}}; });
  refuses("'scale' is 0", [](Graph& graph) { first(graph, OpKind::FlashAttention).attributes = {{"scale", 0.0}}; });
}

TEST(slice_and_silu) {
  const auto range = [](int64_t start, int64_t stop) -> Change {
    return [=](Graph& graph) { first(graph, OpKind::Slice).attributes = {{"start", start}, {"stop", stop}}; };
  };
  refuses("start -1 and stop 63 are not a range", range(-1, 63));
  refuses("start 64 and stop 64 are not a range", range(64, 64));
  refuses("start 65 and stop 129 are not a range", range(65, 129));
  refuses("'start' is missing", [](Graph& graph) { first(graph, OpKind::Slice).attributes.clear(); });
  refuses("'stop' is not a whole number",
          [](Graph& graph) { first(graph, OpKind::Slice).attributes = {{"start", int64_t{0}}, {"stop", 64.0}}; });
  refuses("a multiple of 32", [](Graph& graph) {
    named(graph, "gate_up").shape = {120, 64};
    named(graph, "Linear_14").shape = {1, 4, 120};
  });
}

TEST(all_gather) {
  const hmm::File file = hmm::parse(hmm::map_file(TCIM_LITE_TEST_DATA "/hmm/two_devices.hmms")->span(), "golden");
  const auto refused = [&](const char* text, const Change& change) {
    Graph graph = file.parts[1];
    change(graph);
    CHECK_ERROR(validate(graph), text);
  };
  const auto gather = [](Graph& graph) -> Op& { return first(graph, OpKind::AllGather); };
  const auto set_offset = [&](AttributeValue offset) {
    return [=](Graph& graph) { gather(graph).attributes = {{"offset", offset}}; };
  };
  for (const Graph& part : file.parts) validate(part);
  refused("(AllGather): has 0 inputs, expected 1", [&](Graph& graph) { gather(graph).inputs.clear(); });
  refused("(AllGather): has 2 outputs", [&](Graph& graph) { gather(graph).outputs.push_back(0); });
  refused("attribute 'offset' is missing", [&](Graph& graph) { gather(graph).attributes.clear(); });
  refused("attribute 'offset' is not a whole number", set_offset(1.0));
  refused("does not fit columns -1", set_offset(int64_t{-1}));
  refused("does not fit columns 9223372036854775807", set_offset(INT64_MAX));
  refused("does not fit columns", [&](Graph& graph) { graph.values[gather(graph).outputs[0]].shape.back() = 1; });
  refused("expected float16", [&](Graph& graph) { graph.values[gather(graph).outputs[0]].dtype = DType::Float32; });
  refused("(AllGather)", [&](Graph& graph) { graph.values[gather(graph).outputs[0]].shape[1] += 1; });
}

}  // namespace

int main() {
  validate(golden());
  return run_tests();
}
