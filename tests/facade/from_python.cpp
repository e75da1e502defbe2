#include "tcim/tcim_runtime.h"

static tcim::Module g_module;

extern "C" __attribute__((visibility("default"))) int load_in_cpp(const char* path) {
  return g_module.LoadModel(std::string(path));
}

extern "C" __attribute__((visibility("default"))) int run_in_cpp(const char* path) {
  return load_in_cpp(path) != tcim::OK ? -1 : g_module.Run(false);
}

extern "C" __attribute__((visibility("default"))) void unload_in_cpp() { g_module = tcim::Module(); }
