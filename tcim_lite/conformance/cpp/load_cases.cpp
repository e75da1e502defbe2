// Loading: failures, managers, options.
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <new>
#include <stdexcept>

#include "check.h"

using tcim::Module;

static std::vector<char> Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

CASE(c30_a_load_that_fails_gives_a_falsy_module) {
  std::ofstream(folder + "/garbage.hmm") << "this is no model";
  for (const char* name : {"/missing.hmm", "/garbage.hmm", ""}) {
    Module module = Module::LoadFromFile(folder + name);
    CHECK(!module);
    CHECK(module ? false : true);
    CHECK(module.GetInitStatus() != tcim::OK);
    CHECK(LastErrorHas("Module::LoadFromFile"));
    // Everything else says so too, and nothing throws.
    CHECK_EQ(module.Run(), tcim::UNINITIALIZED);
    CHECK_EQ(module.Sync(), tcim::UNINITIALIZED);
    CHECK_EQ(module.SetInput("a", tcim::Tensor()), tcim::UNINITIALIZED);
    CHECK_EQ(module.SetStream(tcim::Stream()), tcim::UNINITIALIZED);
    CHECK_EQ(module.GetInputNum(), 0);
    CHECK_EQ(module.GetInputName(0), "");
    CHECK(module.GetOutput("total").Data() == nullptr);
    CHECK(module.GetInputInfo("a").Shape().empty());
  }
  CHECK(!Module::LoadFromFile(""));
  CHECK(LastErrorHas("the path is empty"));
  CHECK(Module::LoadFromFile(folder + "/add.hmm").GetInputInfo(std::string("a\0b", 3)).Shape().empty());
  CHECK(LastErrorHas("is named 'a\\x00b'; the inputs are"));
  CHECK(!Module::LoadFromFile(folder + "/add.hmm", Module::Option(77)));
  CHECK(LastErrorHas("77"));
  CHECK(!Module::LoadFromFile(folder + "/add.hmm", Module::Option(-1)));
  CHECK(!Module::LoadFromMem("short", 5));
  CHECK(!Module::LoadFromMem(nullptr, 5));
  CHECK(!Module::LoadFromMem("short", -5));
}

CASE(c30_a_failed_load_leaves_a_loaded_module_alone) {
  Module module;
  CHECK(!module);
  CHECK_EQ(module.GetInitStatus(), tcim::UNINITIALIZED);
  CHECK(module.LoadModel(folder + "/missing.hmm") != tcim::OK);
  CHECK(module.GetInitStatus() != tcim::OK);
  CHECK_EQ(module.LoadModel(folder + "/add.hmm"), tcim::OK);
  CHECK_EQ(module.GetInitStatus(), tcim::OK);
  CHECK(module.LoadModel(folder + "/missing.hmm") != tcim::OK);
  CHECK_EQ(module.GetInputNum(), 4);
  CHECK_EQ(module.Run(true), tcim::OK);
  CHECK_EQ(module.LoadModel(folder + "/linear.hmm"), tcim::OK);
  CHECK_EQ(module.GetInputName(0), "x");
}

CASE(a_module_says_what_it_is) {
  const Module module(folder + "/add.hmm");
  CHECK_EQ(module.GetInitStatus(), tcim::OK);
  CHECK_EQ(module.GetCustomMsg(), "{\"kind\": \"add\"}");
  CHECK_EQ(module.GetBackendName(), "Xh2HalBackend");
  CHECK_EQ(module.GetCoreNum(), 2);
  CHECK_EQ(module.GetModelVersion()[0], 'V');
  CHECK_EQ(module.GetOutputNum(), 1);
  CHECK_EQ(module.GetOutputName(0), "total");
  CHECK_EQ(module.GetInputName(4), "");
  CHECK_EQ(module.GetInputName(-1), "");
  CHECK_EQ(tcim::GetVersion()[0], 'v');
  CHECK_EQ(tcim::GetDeviceNum(), 2);
  CHECK_EQ(tcim::GetDeviceNum("Xh2HalBackend"), 2);
  CHECK_EQ(tcim::GetDeviceNum("Xh1HdiBackend"), 0);
}

CASE(models_load_from_memory_and_from_within_a_file) {
  const std::vector<char> model = Bytes(folder + "/linear.hmm");
  Module from_memory = Module::LoadFromMem(model.data(), int(model.size()));
  CHECK(from_memory);
  CHECK_EQ(from_memory.GetInputName(0), "x");

  std::ofstream(folder + "/bundle", std::ios::binary).write("header", 6).write(model.data(), model.size()) << "trailer";
  Module::Option option;
  option.SetModelOffset(6, model.size());
  CHECK(Module::LoadFromFile(folder + "/bundle", option));
  const std::vector<char> bundle = Bytes(folder + "/bundle");
  Module module;
  CHECK_EQ(module.LoadModel(bundle.data(), bundle.size(), option), tcim::OK);
  option.SetModelOffset(6, bundle.size());
  CHECK_EQ(module.LoadModel(bundle.data(), bundle.size(), option), tcim::INVALID_ARGUMENT);
  option.SetModelOffset(6, 0);
  CHECK_EQ(module.LoadModel(bundle.data(), bundle.size(), option), tcim::INVALID_ARGUMENT);
  CHECK(!Module::LoadFromMem(Bytes(folder + "/linear_prefill.hmm").data(),
                             int(Bytes(folder + "/linear_prefill.hmm").size())));
  CHECK(LastErrorHas("linear.hmw"));
}

CASE(managers_and_options_check_what_they_are_made_of) {
  using tcim::DevManager;
  CHECK_EQ(Module::WeightManager().GetInitStatus(), tcim::UNINITIALIZED);
  CHECK_EQ(Module::WeightManager::CreateWeightManager(0).GetInitStatus(), tcim::OK);
  CHECK_EQ(Module::WeightManager::CreateWeightManager(-1).GetInitStatus(), tcim::INVALID_ARGUMENT);
  CHECK_EQ(DevManager::Create(std::vector<int32_t>{}).GetInitStatus(), tcim::INVALID_ARGUMENT);
  CHECK_EQ(DevManager::Create(0, "Xh1HdiBackend").GetInitStatus(), tcim::UNSUPPORTED);
  CHECK_EQ(DevManager::Create(0, "no such thing").GetInitStatus(), tcim::INVALID_ARGUMENT);
  CHECK_EQ(DevManager::Create({0, 1}, "xh2").GetInitStatus(), tcim::OK);  // whether 1 exists is the load's business
  const DevManager devices = DevManager::Create(std::vector<int>{0}, "Xh2HalBackend");
  CHECK(Module::LoadFromFile(folder + "/add.hmm", Module::WeightManager::CreateWeightManager(devices)));
  CHECK_EQ(Module::LoadFromFile(folder + "/add.hmm", Module::WeightManager()).GetInitStatus(), tcim::UNINITIALIZED);

  // An unknown dummy is ignored; a known one has no memory; a copy of the option is independent.
  Module::Option option, copy = option;
  option.SetDummyTensors({"a", "nobody"}).EnableHostLazyLoading(true).EnableIOLazyMode(true);
  Module dummy = Module::LoadFromFile(folder + "/add.hmm", option);
  CHECK_EQ(dummy.Run(), tcim::UNINITIALIZED);
  const tcim::Tensor unbound = dummy.GetInput("a");
  CHECK(unbound.Data() == nullptr);
  CHECK_EQ(unbound.GetInitStatus(), tcim::UNINITIALIZED);
  CHECK_EQ(unbound.Info().Shape().size(), 2u);
  CHECK_EQ(unbound.Buffer().Size(), 0u);
  CHECK_EQ(Module::LoadFromFile(folder + "/add.hmm", copy).Run(), tcim::OK);
  option.SetDummyTensors({});
  CHECK_EQ(Module::LoadFromFile(folder + "/add.hmm", option).Run(), tcim::OK);
}

CASE(an_abort_callback_ends_the_load) {
  int calls = 0;
  Module::Option option;
  option.RegisterAbortCbFn([&] {
    ++calls;
    return false;
  });
  CHECK(Module::LoadFromFile(folder + "/linear_prefill.hmm", option));
  CHECK(calls >= 3);  // before, while weights are checked, after
  calls = 0;          // from now on they have been checked
  CHECK(Module::LoadFromFile(folder + "/linear_prefill.hmm", option));
  CHECK(calls >= 2);
  for (int at = 1; at <= calls; ++at) {
    int left = at;
    option.RegisterAbortCbFn([&] { return --left == 0; });
    Module module = Module::LoadFromFile(folder + "/linear_prefill.hmm", option);
    CHECK(!module);
    CHECK_EQ(module.GetInitStatus(), tcim::ERR_UNDEFINED);
    CHECK(LastErrorHas("abort"));
  }
  option.RegisterAbortCbFn([]() -> bool { throw std::runtime_error("from the callback"); });
  CHECK(!Module::LoadFromFile(folder + "/linear_prefill.hmm", option));
  CHECK(LastErrorHas("the abort callback threw: from the callback"));
  // It may start a process.
  bool ended_well = true;
  option.RegisterAbortCbFn([&] {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = -1;
    ended_well = ended_well && child > 0 && waitpid(child, &status, 0) == child && status == 0;
    return false;
  });
  CHECK(Module::LoadFromFile(folder + "/linear_prefill.hmm", option));
  CHECK(ended_well);
  option.RegisterAbortCbFn(nullptr);
  CHECK(Module::LoadFromFile(folder + "/linear_prefill.hmm", option));
}

// Extras of the emulator; the program is built for other runtimes, too.
template <typename Loaded>
auto GetDeviceIds(const Loaded& module, int) -> decltype(module.GetDeviceIds()) {
  return module.GetDeviceIds();
}
template <typename Loaded>
std::vector<int32_t> GetDeviceIds(const Loaded&, long) {
  return {};
}
template <typename Manager>
auto Release(Manager& manager, int) -> decltype(manager.Release()) {
  return manager.Release();
}
template <typename Manager>
tcim::Status Release(Manager&, long) {
  return tcim::UNSUPPORTED;
}

CASE(a_manager_can_be_released_while_modules_use_it) {
  auto weights = Module::WeightManager::CreateWeightManager(0);
  CHECK_EQ(Release(weights, 0), tcim::OK);
  Module module = Module::LoadFromFile(folder + "/linear_prefill.hmm", Module::Option(weights));
  for (int times = 0; times < 2; ++times) CHECK_EQ(Release(weights, 0), tcim::OK);
  CHECK_EQ(module.Run(true), tcim::OK);
  CHECK(Module::LoadFromFile(folder + "/linear_decode.hmm", Module::Option(weights)));
  Module::WeightManager nothing;
  CHECK_EQ(Release(nothing, 0), tcim::UNINITIALIZED);
  CHECK(LastErrorHas("CreateWeightManager"));
}

CASE(c25_an_explicit_destructor_before_the_scope_ends_is_harmless) {
  Module module;
  {
    auto weights = Module::WeightManager::CreateWeightManager(0);
    module = Module::LoadFromFile(folder + "/linear_prefill.hmm", Module::Option(weights));
    weights.~WeightManager();
    CHECK_EQ(weights.GetInitStatus(), tcim::UNINITIALIZED);
    weights.~WeightManager();
  }
  CHECK(module);
  struct Holder {
    Module::WeightManager weights = Module::WeightManager::CreateWeightManager(0);
  };
  auto* holder = new Holder;
  auto shared = holder->weights;
  holder->weights.~WeightManager();
  delete holder;
  CHECK_EQ(shared.GetInitStatus(), tcim::OK);
  // After the destructor the object may be made again in its place.
  shared.~WeightManager();
  new (&shared) Module::WeightManager(Module::WeightManager::CreateWeightManager(0));
  CHECK(Module::LoadFromFile(folder + "/linear_prefill.hmm", shared));
}

CASE(a_module_names_the_devices_it_runs_on) {
  const tcim::DevManager devices = tcim::DevManager::Create(std::vector<int32_t>{1, 0});
  const Module module(folder + "/add.hmm", Module::Option(Module::WeightManager::CreateWeightManager(devices)));
  CHECK(GetDeviceIds(module, 0) == std::vector<int32_t>{1});
  const Module nothing;
  CHECK(GetDeviceIds(nothing, 0).empty());
  CHECK(LastErrorHas("GetDeviceIds"));
}
