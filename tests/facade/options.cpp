// Members of Module::Option as older revisions of the vendor's module pool use them: argv[1] is a model.
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "expect.h"
#include "tcim/tcim_runtime.h"

using Option = tcim::Module::Option;
using WeightManager = tcim::Module::WeightManager;

static std::string loads(const std::string& path, const Option& option) {
  tcim::Module module;
  return module.LoadModel(path, option) == tcim::OK ? "" : tcim::GetLastError();
}

int main(int, char** argv) {
  const std::string path = argv[1];
  EXPECT(Option().device_id == 0 && Option(1).device_id == 1);
  EXPECT(Option(tcim::DevManager::Create({1, 0})).device_id == 1);
  EXPECT(Option(WeightManager()).device_id == -1);

  // The pool's load: an option of its own that takes over the caller's, with one manager for all modules.
  const auto load = [&](const Option& option) {
    const WeightManager shared = WeightManager::CreateWeightManager(option.device_id);
    Option made(option.device_id);
    made = option;
    made.weight_manager = shared;
    const Option copied = made;
    EXPECT(copied.device_id == option.device_id);
    tcim::Module module;
    EXPECT(module.LoadModel(path, copied) == tcim::OK);
    return module;
  };
  EXPECT(load(Option()));
  EXPECT(load(Option(1)));
  Option dummies(WeightManager::CreateWeightManager(1));
  dummies.SetDummyTensors({"a"}).EnableLazyMode(true);  // of older revisions of its LLM program
  EXPECT(load(dummies).GetDevInput("a").Data() == nullptr);

  Option half(0);
  half.device_id = 1;
  EXPECT(loads(path, half).find("device_id is 1, its weight_manager is of device 0; set both") != std::string::npos);
  half.weight_manager = WeightManager::CreateWeightManager(1);
  EXPECT(loads(path, half).empty());
  half.weight_manager = WeightManager();
  EXPECT(loads(path, half).find("a WeightManager that was not created") != std::string::npos);
  return 0;
}
