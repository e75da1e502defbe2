// libFuzzer target over a load from memory, as a program does it: weights are checked and counted, memory is planned,
// and what loads is run once on devices of two MiB.
#include <stdlib.h>
#include <sys/mman.h>

#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "runtime/module.h"

using namespace tcim_lite;

namespace {

constexpr int kDevices = 3;

// Lengths are 1, the least that runs; all else is 0.
void set_inputs(Module& module) {
  for (size_t index = 0; index < module.num_inputs(); ++index) {
    const std::string name = module.input_name(int64_t(index));
    const TensorInfo info = module.input_info(name);
    const int32_t one = 1;
    const Shape shape{1}, strides{4};
    if (info.dtype == DType::Int32 && info.elements() == 1)
      module.set_input(name, ArrayView{reinterpret_cast<const std::byte*>(&one), DType::Int32, shape, strides});
  }
}

void load_and_run(std::span<const std::byte> bytes) {
  LoadOptions options;
  options.device_ids = {0, 1, 2};
  std::shared_ptr<Module> module;
  try {
    module = Module::load(bytes, options);
  } catch (const Error& error) {
    // A file that is wrong; for other devices; too large for these; legal, without a kernel for it.
    for (const ErrorCode code : {ErrorCode::Format, ErrorCode::Argument, ErrorCode::Device, ErrorCode::Unsupported}) {
      if (error.code() == code) return;
    }
    __builtin_trap();
  }
  set_inputs(*module);
  try {
    module->run(true);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Argument) __builtin_trap();  // lengths do not fit
  }
  for (size_t index = 0; index < module->num_outputs(); ++index) module->output(module->output_name(int64_t(index)));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  // Every load reads it again. A memfd leaves nothing to clean up.
  const std::string path = "/proc/self/fd/" + std::to_string(memfd_create("fuzz_load devices", 0));
  std::ofstream profile(path);
  for (int id = 0; id < kDevices; ++id) profile << "[device]\nmemory = 2 MiB\n";
  profile.close();
  setenv("TCIM_LITE_DEVICES", path.c_str(), 1);
  setenv("TCIM_LITE_THREADS", "1", 1);
  setenv("TCIM_LITE_ISA", "ref", 1);  // the kernels that are instrumented
  setenv("TCIM_LITE_LOG", "error", 1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  load_and_run(std::as_bytes(std::span(data, size)));
  return 0;
}
