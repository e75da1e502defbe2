// Injected faults (docs/fault-injection.md): programs without exceptions see statuses, and go on after a reset.
#include <cstdlib>
#include <fstream>

#include "check.h"
#include "tcim/tcim_dev_ctrl.h"

using namespace tcim::dev_ctrl;

// In force from the first call on.
static void Inject(const std::string& folder, const char* rules) {
  std::ofstream(folder + "/rules.toml") << rules;
  setenv("TCIM_LITE_FAULTS", (folder + "/rules.toml").c_str(), 1);
}

static void SetInputs(tcim::Module& module) {
  for (const char* name : {"a", "b"}) CHECK_EQ(module.SetInput(name, Filled(module.GetInputInfo(name), 2)), tcim::OK);
}

CASE(a_lost_device_fails_what_needs_it_until_it_is_reset) {
  Inject(folder, "[[fault]]\nkind = \"device_lost\"\nnth = 2\n");
  const auto hal = HalDeviceFactory::Create();
  MemInfo info;
  {
    tcim::Module module(folder + "/add.hmm");
    SetInputs(module);
    CHECK_EQ(module.Run(true), tcim::OK);
    CHECK_EQ(module.Run(), tcim::OK);
    CHECK_EQ(module.Sync(), tcim::ERR_UNDEFINED);
    CHECK(LastErrorHas("device 0 is lost"));
    CHECK_EQ(module.Run(), tcim::ERR_UNDEFINED);
    CHECK_EQ(module.SetInput("a", Filled(module.GetInputInfo("a"), 1)), tcim::ERR_UNDEFINED);
    CHECK(module.GetOutput("total").Data() == nullptr);
    CHECK(!tcim::Module::LoadFromFile(folder + "/add.hmm"));
    CHECK(tcim::Buffer::CreateDeviceBuffer(64, 0).GetInitStatus() != tcim::OK);
    CHECK_EQ(tcim::Buffer::CreateHostBuffer(64).GetInitStatus(), tcim::OK);
    CHECK_EQ(module.GetInputInfo("a").Shape().size(), 2u);
    CHECK_EQ(hal->GetMemInfo(0, &info), tcim::ERR_UNDEFINED);
    CHECK_EQ(hal->IpuReset(0), tcim::OK);
    CHECK_EQ(module.Run(), tcim::OK);
    CHECK_EQ(module.Sync(), tcim::OK);
    CHECK(AllEqual(module.GetOutput("total"), 4));
  }
  CHECK_EQ(hal->GetMemInfo(0, &info), tcim::OK);
  CHECK_EQ(info.mem_used, 0u);
}

CASE(a_hang_ends_with_ret_110) {
  Inject(folder, "[[fault]]\nkind = \"hang\"\ntimeout_s = 0.1\n");
  tcim::Module module(folder + "/add.hmm");
  SetInputs(module);
  CHECK_EQ(module.Run(true), tcim::ERR_UNDEFINED);
  CHECK(LastErrorHas("(ret:110)"));
  CHECK_EQ(module.Sync(), tcim::ERR_UNDEFINED);
  CHECK_EQ(HalDeviceFactory::Create()->IpuReset(0), tcim::OK);
  CHECK_EQ(module.Run(true), tcim::OK);
  CHECK(AllEqual(module.GetOutput("total"), 4));
}

CASE(loads_fail_and_give_falsy_modules) {
  Inject(folder,
         "[[fault]]\nkind = \"out_of_memory\"\nnth = 2\n"
         "[[fault]]\nkind = \"load_failure\"\nnth = 2\n");
  tcim::Module first(folder + "/add.hmm");
  CHECK(first);
  for (const char* words : {"out of memory", "is damaged"}) {
    const tcim::Module none = tcim::Module::LoadFromFile(folder + "/add.hmm");
    CHECK(!none);
    CHECK_EQ(none.GetInitStatus(), tcim::ERR_UNDEFINED);
    CHECK(LastErrorHas(words));
  }
  CHECK(tcim::Module::LoadFromFile(folder + "/add.hmm"));
  SetInputs(first);
  CHECK_EQ(first.Run(true), tcim::OK);
}

// Python makes neither call; the matrix of the others is cases/faults.py.
CASE(faults_in_the_calls_of_cpp_alone_are_errors_and_a_reset_ends_them) {
  std::string rules;
  for (const char* call : {"Buffer.create", "Tensor.data"}) {
    for (const char* kind : {"out_of_memory", "reset", "device_lost", "hang", "slow", "throttle"}) {
      if (call == std::string("Tensor.data") && kind == std::string("out_of_memory")) continue;
      rules += std::string("[[fault]]\nkind = \"") + kind + "\"\ncall = \"" + call + "\"\n";
      if (kind == std::string("hang")) rules += "timeout_s = 0.05\n";
      if (kind == std::string("slow")) rules += "delay_s = 0.01\n";
      if (kind == std::string("throttle")) rules += "clock_mhz = 100\n";
    }
  }
  Inject(folder, rules.c_str());
  const auto hal = HalDeviceFactory::Create();
  MemInfo before, after;
  tcim::Module module(folder + "/add.hmm");
  SetInputs(module);
  CHECK_EQ(module.Run(true), tcim::OK);
  CHECK_EQ(hal->GetMemInfo(0, &before), tcim::OK);
  for (const char* words : {"out of memory", "was reset", "is lost", "(ret:110)"}) {
    CHECK(tcim::Buffer::CreateDeviceBuffer(64, 0).GetInitStatus() != tcim::OK);
    CHECK(LastErrorHas(words));
    CHECK_EQ(hal->IpuReset(0), tcim::OK);
  }
  CHECK_EQ(tcim::Buffer::CreateDeviceBuffer(64, 0).GetInitStatus(), tcim::OK);
  CHECK_EQ(hal->IpuReset(0), tcim::OK);  // from the low clock too
  for (const char* words : {"was reset", "is lost", "(ret:110)"}) {
    CHECK(module.GetDevOutput("total").Data() == nullptr);
    CHECK(LastErrorHas(words));
    CHECK_EQ(hal->IpuReset(0), tcim::OK);
  }
  CHECK(module.GetDevOutput("total").Data() != nullptr);
  CHECK_EQ(hal->IpuReset(0), tcim::OK);
  CHECK_EQ(module.Run(true), tcim::OK);
  CHECK(AllEqual(module.GetOutput("total"), 4));
  CHECK_EQ(hal->GetMemInfo(0, &after), tcim::OK);
  CHECK_EQ(after.mem_used, before.mem_used);
}

CASE(rules_that_cannot_be_read_fail_the_call) {
  Inject(folder, "[[fault]]\nkind = \"hung\"\n");
  CHECK(!tcim::Module::LoadFromFile(folder + "/add.hmm"));
  CHECK(LastErrorHas("/rules.toml:2: got kind = 'hung', expected one of device_lost, hang"));
}
