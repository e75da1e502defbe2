// Modules: data in, runs, data out.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "check.h"

using tcim::Module;

extern std::atomic<long> g_allocations;

static const char* const kCache = "model_layers_0_self_attn_kcache_input";
static const char* const kOtherCache = "model_layers_0_self_attn_vcache_input";

// Prefill, and decode whose caches are dummies.
struct Pair {
  explicit Pair(const std::string& folder) {
    const auto weights = Module::WeightManager::CreateWeightManager(0);
    prefill = Module::LoadFromFile(folder + "/attention_prefill.hmm", weights);
    decode = Module::LoadFromFile(folder + "/attention_decode.hmm",
                                  Module::Option(weights).SetDummyTensors({kCache, kOtherCache}));
    for (const char* name : {kCache, kOtherCache}) CHECK_EQ(decode.SetInput(name, prefill.GetInput(name)), tcim::OK);
  }

  // `count` rows of `value` from position `valid` on.
  static tcim::Status Step(Module& module, float value, int32_t valid, int32_t count) {
    CHECK_EQ(module.SetInput("input_1", Filled(module.GetInputInfo("input_1"), value)), tcim::OK);
    Length(module, "valid_length", valid);
    Length(module, "current_length", count);
    return module.Run(true);
  }

  static void Length(Module& module, const char* name, int32_t value) {
    const auto info = module.GetInputInfo(name);
    CHECK_EQ(module.SetInput(name, tcim::Tensor::CreateHostTensor(info, sizeof(value), &value)), tcim::OK);
  }

  Module prefill, decode;
};

CASE(c01_runs_write_the_caches_bound_to_them) {
  Pair pair(folder);
  CHECK_EQ(Pair::Step(pair.prefill, 3, 0, 2), tcim::OK);
  CHECK_EQ(Pair::Step(pair.decode, 5, 2, 1), tcim::OK);
  const std::vector<float> cache = Values(pair.prefill.GetInput(kCache));  // [1, 2, 32, 64]
  CHECK_EQ(cache[0], 3.0f);
  CHECK_EQ(cache[1 * 64], 3.0f);
  CHECK_EQ(cache[2 * 64], 5.0f);
  CHECK_EQ(cache[3 * 64], 0.0f);
}

CASE(c02_a_host_write_goes_through_the_binding) {
  Pair pair(folder);
  CHECK_EQ(pair.prefill.SetInput(kCache, Filled(pair.prefill.GetInputInfo(kCache), 2)), tcim::OK);
  CHECK(AllEqual(pair.decode.GetInput(kCache), 2));
  CHECK_EQ(pair.decode.SetInput(kCache, Filled(pair.decode.GetInputInfo(kCache), 0)), tcim::OK);
  CHECK(AllEqual(pair.prefill.GetDevInput(kCache), 0));
}

CASE(c03_host_data_is_copied_at_call_time) {
  Module module(folder + "/add.hmm");
  {
    float values[6] = {1, 2, 3, 4, 5, 6};
    const auto info = tcim::TensorInfo::CreateNDInfo({2, 3}, tcim::FLOAT32);
    CHECK_EQ(module.SetInput("a", tcim::Tensor::CreateHostTensor(info, sizeof(values), values)), tcim::OK);
    std::fill_n(values, 6, 9.0f);
  }
  CHECK_EQ(module.Run(), tcim::OK);
  CHECK_EQ(module.Sync(), tcim::OK);
  CHECK(Values(module.GetOutput("total")) == std::vector<float>({1, 2, 3, 4, 5, 6}));
  CHECK_EQ(module.Run(true), tcim::OK);  // C-4: values persist
  CHECK(Values(module.GetOutput("total")) == std::vector<float>({1, 2, 3, 4, 5, 6}));
}

CASE(a_bound_tensor_is_aligned_for_its_elements) {
  Module module(folder + "/add.hmm");
  const auto info = module.GetInputInfo("a");  // float16
  const auto buffer = tcim::Buffer::CreateDeviceBuffer(64, 0);
  CHECK_EQ(module.SetDevInput("a", tcim::Tensor(info, buffer.GetSubBuffer(info.MemSize(), 3))), tcim::INVALID_ARGUMENT);
  CHECK(LastErrorHas("begins at byte 3"));
  CHECK_EQ(module.SetDevInput("a", tcim::Tensor(info, buffer.GetSubBuffer(info.MemSize(), 2))), tcim::OK);
}

// On 1.4 it is bound; of 1.3.0 it is reported to be refused, where SetDevInput binds.
CASE(c08_set_input_binds_a_device_tensor_as_the_version_does) {
  Module module(folder + "/add.hmm");
  CHECK_EQ(module.SetInput("a", Filled(module.GetInputInfo("a"), 2)), tcim::OK);
  const auto tensor = module.GetDevInput("a").Clone();
  CHECK_EQ(module.SetInput("a", tensor), SetInputBinds() ? tcim::OK : tcim::UNINITIALIZED);
  CHECK_EQ(module.SetInput("a", Filled(module.GetInputInfo("a"), 3)), tcim::OK);
  CHECK(AllEqual(tensor, SetInputBinds() ? 3 : 2));
  CHECK_EQ(module.SetDevInput("a", tensor), tcim::OK);
  CHECK_EQ(module.SetInput("a", Filled(module.GetInputInfo("a"), 4)), tcim::OK);
  CHECK(AllEqual(tensor, 4));
}

CASE(c09_an_output_may_be_an_input_of_its_own_module) {
  Module module(folder + "/add.hmm");
  CHECK_EQ(module.SetInput("b", Filled(module.GetInputInfo("b"), 1)), tcim::OK);
  CHECK_EQ(module.SetDevInput("a", module.GetDevOutput("total")), tcim::OK);
  for (int i = 1; i <= 3; ++i) {
    CHECK_EQ(module.Run(true), tcim::OK);
    CHECK(AllEqual(module.GetOutput("total"), float(i)));
  }
  const auto state = tcim::Tensor::CreateDeviceTensor(module.GetInputInfo("a"));
  CHECK_EQ(module.SetDevInput("a", state), tcim::OK);
  CHECK_EQ(module.SetDevOutput("total", state), tcim::OK);
  CHECK_EQ(module.Run(false, Module::RunOption().Rounds(3)), tcim::OK);
  CHECK_EQ(module.Sync(), tcim::OK);
  CHECK(AllEqual(state, 3));
}

CASE(c22_what_is_bound_outlives_its_owner) {
  tcim::Tensor cache, total;
  {
    Module decode;
    {
      Pair pair(folder);
      CHECK_EQ(Pair::Step(pair.prefill, 3, 0, 2), tcim::OK);
      decode = pair.decode;
    }
    CHECK_EQ(Pair::Step(decode, 5, 2, 1), tcim::OK);
    cache = decode.GetInput(kCache);
    Module add(folder + "/add.hmm");
    CHECK_EQ(add.SetInput("a", Filled(add.GetInputInfo("a"), 4)), tcim::OK);
    CHECK_EQ(add.SetInput("b", Filled(add.GetInputInfo("b"), 0)), tcim::OK);
    CHECK_EQ(add.Run(), tcim::OK);
    total = add.GetDevOutput("total");
  }
  const std::vector<float> rows = Values(cache);
  CHECK_EQ(rows[0], 3.0f);
  CHECK_EQ(rows[2 * 64], 5.0f);
  CHECK(AllEqual(total, 4));
}

CASE(c26_setting_an_unchanged_device_tensor_again_costs_nothing) {
  Pair pair(folder);
  const tcim::Tensor cache = pair.prefill.GetInput(kCache);
  const std::string name = kCache;
  CHECK_EQ(Pair::Step(pair.prefill, 3, 0, 2), tcim::OK);
  CHECK_EQ(Pair::Step(pair.decode, 5, 2, 1), tcim::OK);
  const std::vector<float> once = Values(pair.decode.GetOutput("logits"));
  const long before = g_allocations;
  for (int i = 0; i < 100; ++i) CHECK_EQ(int(pair.decode.SetInput(name, cache)), 0);
  CHECK_EQ(g_allocations - before, 0L);
  CHECK_EQ(Pair::Step(pair.decode, 5, 2, 1), tcim::OK);
  CHECK(Values(pair.decode.GetOutput("logits")) == once);
}

CASE(outputs_go_where_and_how_they_are_wanted) {
  Module module(folder + "/add.hmm");
  CHECK_EQ(module.SetInput("a", Filled(module.GetInputInfo("a"), 1.5)), tcim::OK);
  // A host tensor is filled when a run completes; Data() waits for that.
  const auto info = module.GetOutputInfo("total");
  tcim::Tensor host = tcim::Tensor::CreateHostTensor(info.AsType(tcim::FLOAT32));
  CHECK_EQ(module.SetOutput("total", host), tcim::OK);
  CHECK_EQ(module.Run(), tcim::OK);
  CHECK_EQ(static_cast<float*>(host.Data())[5], 1.5f);
  // A device tensor is written by the graph itself.
  tcim::Tensor device = tcim::Tensor::CreateDeviceTensor(info);
  CHECK_EQ(module.SetOutput("total", device), tcim::OK);
  CHECK_EQ(module.Run(), tcim::OK);
  CHECK(AllEqual(device, 1.5));
  // Copies into given tensors, converted and strided.
  int8_t image[4 * 5] = {};
  const auto wide = tcim::Tensor::CreateHostTensor(tcim::TensorInfo::CreateNDInfo({4, 5}, tcim::INT8), 0, image);
  CHECK_EQ(module.GetOutput("total", wide.SelectROI({1, 1}, {2, 3})), tcim::OK);
  CHECK_EQ(int(image[0]), 0);
  CHECK_EQ(int(image[6]), 2);  // 1.5 to the nearest even
  CHECK_EQ(int(image[13]), 2);
  CHECK_EQ(int(image[14]), 0);
  tcim::Tensor input = tcim::Tensor::CreateHostTensor(info);
  int ret = module.GetInput("a", input);
  CHECK_EQ(ret, 0);
  CHECK(AllEqual(input, 1.5));
  tcim::Tensor twin = tcim::Tensor::CreateDeviceTensor(info);
  CHECK_EQ(module.GetInput("a", twin), tcim::OK);
  CHECK(AllEqual(twin, 1.5));
}

CASE(wrong_arguments_are_refused_and_change_nothing) {
  Module module(folder + "/add.hmm");
  CHECK_EQ(module.SetInput("a", Filled(module.GetInputInfo("a"), 2)), tcim::OK);
  CHECK_EQ(module.SetInput("nobody", Filled(module.GetInputInfo("a"), 3)), tcim::INVALID_ARGUMENT);
  CHECK(LastErrorHas("Module set_input error"));
  CHECK(LastErrorHas("length"));  // the names that exist
  CHECK_EQ(module.SetInput("a", tcim::Tensor()), tcim::UNINITIALIZED);
  CHECK(LastErrorHas("set_input error: Status.UNINITIALIZED"));
  CHECK_EQ(module.SetInput("a", Filled(tcim::TensorInfo::CreateNDInfo({7}, tcim::FLOAT32), 3)), tcim::INVALID_ARGUMENT);
  CHECK_EQ(module.SetDevInput("a", Filled(module.GetInputInfo("a"), 3)), tcim::INVALID_ARGUMENT);
  const auto other = tcim::Tensor::CreateDeviceTensor(tcim::TensorInfo::CreateNDInfo({2, 3}, tcim::FLOAT32));
  CHECK_EQ(module.SetDevInput("a", other), tcim::INVALID_ARGUMENT);
  CHECK_EQ(module.SetDevOutput("total", other), tcim::INVALID_ARGUMENT);
  CHECK_EQ(module.SetOutput("total", tcim::Tensor()), tcim::UNINITIALIZED);
  CHECK_EQ(module.GetOutput("total", tcim::Tensor()), tcim::UNINITIALIZED);
  CHECK_EQ(module.GetOutput("total", Filled(tcim::TensorInfo::CreateNDInfo({7}, tcim::FLOAT32), 3)),
           tcim::INVALID_ARGUMENT);
  CHECK(module.GetOutput("nobody").Data() == nullptr);
  CHECK(module.GetDevOutput("nobody").GetInitStatus() == tcim::INVALID_ARGUMENT);
  CHECK(module.GetInputInfo("nobody").Shape().empty());
  CHECK_EQ(module.Run(false, Module::RunOption().Rounds(0)), tcim::INVALID_ARGUMENT);
  tcim::Stream stream, moved = std::move(stream);
  CHECK_EQ(module.SetStream(stream), tcim::UNINITIALIZED);
  int32_t too_big = 1 << 20;
  CHECK_EQ(module.SetInput(
               "image", tcim::Tensor::CreateHostTensor(tcim::TensorInfo::CreateNDInfo({1}, tcim::INT32), 4, &too_big)),
           tcim::INVALID_ARGUMENT);
  CHECK_EQ(module.Run(true), tcim::OK);
  CHECK(AllEqual(module.GetOutput("total"), 2));
}

CASE(an_error_of_a_queued_run_is_returned_once) {
  Module module(folder + "/add.hmm");
  CHECK_EQ(module.SetInput("a", Filled(module.GetInputInfo("a"), NAN)), tcim::OK);
  CHECK_EQ(module.Run(), tcim::OK);
  CHECK_EQ(module.Sync(), tcim::INVALID_ARGUMENT);
  CHECK_EQ(module.Sync(), tcim::OK);
}

CASE(copies_share_a_module_and_streams_run_many) {
  Module::Option option(0);
  std::vector<Module> modules(3);
  for (auto& module : modules) module = Module::LoadFromFile(folder + "/add.hmm", option);
  modules.push_back(modules[0]);  // the same module
  std::vector<tcim::Stream> streams;
  streams.resize(8);
  for (size_t i = 0; i < modules.size(); ++i) CHECK_EQ(modules[i].SetStream(streams[i]), tcim::OK);
  streams.clear();  // modules keep theirs
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        CHECK_EQ(modules[t].SetInput("a", Filled(modules[t].GetInputInfo("a"), float(t * 100 + i))), tcim::OK);
        CHECK_EQ(modules[t].Run(), tcim::OK);
        CHECK(AllEqual(modules[t].GetOutput("total"), float(t * 100 + i)));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(AllEqual(modules[3].GetOutput("total"), 49));
  CHECK_EQ(modules[3].SetStream(tcim::Stream(tcim::kAutoYield)), tcim::OK);
  CHECK_EQ(modules[0].Run(true), tcim::OK);
}

CASE(a_shape_lives_as_long_as_what_shares_it) {
  Module module(folder + "/add.hmm");
  auto& of_module = module.GetInputInfo("a").Shape();
  auto& of_input = module.GetInput("a").Info().Shape();
  CHECK(&of_module == &of_input);
  tcim::Tensor tensor = tcim::Tensor::CreateHostTensor(tcim::TensorInfo::CreateNDInfo({4, 5}, tcim::INT8));
  auto& of_tensor = tensor.Info().Shape();
  tcim::Tensor copy = tensor;
  tensor = tcim::Tensor();
  CHECK(of_tensor == std::vector<int64_t>({4, 5}));
  CHECK(of_module == std::vector<int64_t>({2, 3}));
}

CASE(c28_a_model_for_several_devices_loads_with_all_of_them) {
  const std::string path = folder + "/heads_2_1.hmms";
  CHECK(!Module::LoadFromFile(path));
  CHECK(!Module::LoadFromFile(path, Module::Option(1)));
  const auto devices = tcim::DevManager::Create({1, 0}, "Xh2HalBackend");
  Module module = Module::LoadFromFile(path, Module::WeightManager::CreateWeightManager(devices));
  CHECK(module);
  // One logical tensor, cut over the devices: shapes are those of a single device, and there is no single address.
  const auto info = module.GetInputInfo(kCache);
  CHECK(info.Shape() == std::vector<int64_t>({1, 3, 32, 64}));
  CHECK_EQ(info.Device(), tcim::HDPL);
  CHECK(module.GetInput(kCache).Data() == nullptr);
  CHECK(module.GetInput(kCache).Buffer().Data() == nullptr);
  CHECK_EQ(module.SetInput(kCache, Filled(info, 2)), tcim::OK);
  CHECK(AllEqual(module.GetInput(kCache), 2));
  const auto cache = tcim::Tensor::CreateDeviceTensor(info, 0, 1);
  CHECK_EQ(module.GetInput(kCache).CopyTo(cache), tcim::OK);
  CHECK(AllEqual(cache.Clone(), 2));
  CHECK_EQ(module.SetDevInput(kCache, cache), tcim::OK);
  CHECK_EQ(module.SetDevInput(kCache, tcim::Tensor::CreateDeviceTensor(info, 0, 0)), tcim::INVALID_ARGUMENT);
  tcim::Buffer buffer = cache.Buffer(), clone = buffer.Clone();
  CHECK_EQ(buffer.MemSet(0, buffer.Size(), 0), tcim::OK);
  CHECK(AllEqual(module.GetInput(kCache), 0));
  CHECK_EQ(clone.CopyTo(buffer), tcim::OK);
  CHECK(AllEqual(module.GetInput(kCache), 2));
  CHECK_EQ(Pair::Step(module, 1, 4, 4), tcim::OK);
  const tcim::Tensor once = module.GetOutput("logits");
  CHECK(once.Info().Shape() == std::vector<int64_t>({1, 4, 192}));
  CHECK_EQ(Pair::Step(module, 1, 4, 4), tcim::OK);
  CHECK(std::memcmp(module.GetOutput("logits").Data(), once.Data(), once.MemSize()) == 0);
  const std::vector<float> rows = Values(module.GetInput(kCache));
  CHECK_EQ(rows[3 * 64], 2.0f);  // row 3 of the first head, and the rows that the run wrote
  CHECK(rows[4 * 64] != 2.0f);
  CHECK(rows[(2 * 32 + 7) * 64] != 2.0f);
  CHECK_EQ(rows[(2 * 32 + 8) * 64], 2.0f);
}
