// Finds and opens the shared library of the CUDA backend, at the first use of a device on it and not before: what it
// starts in the driver would not survive a fork.
#include <dlfcn.h>

#include <string>

#include "backends/backend.h"
#include "base/error.h"

namespace tcim_lite {
namespace {

constexpr const char* kLibrary = "libtcim_backend_cuda.so";
constexpr const char* kWhatToDo = "; unset TCIM_LITE_DEVICE to use the CPU (docs/cuda.md)";

std::string own_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&cuda_backend), &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

Backend& open_backend() {
  const std::string path = concat(own_folder(), "/", kLibrary);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail(ErrorCode::Unsupported, "TCIM_LITE_DEVICE=cuda: the CUDA backend cannot be loaded (", dlerror(),
         "); build tcim_lite where nvcc is, with -DTCIM_LITE_CUDA=ON", kWhatToDo);
  }
  using Entry = Backend* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "tcim_lite_open_cuda_backend"));
  if (entry == nullptr) {
    fail(ErrorCode::Unsupported, "TCIM_LITE_DEVICE=cuda: ", path, " is no CUDA backend of this version; install ",
         "tcim_lite again", kWhatToDo);
  }
  return *entry();
}

}  // namespace

// A failure is not remembered: the next call tries again.
Backend& cuda_backend() {
  static Backend& backend = open_backend();
  return backend;
}

}  // namespace tcim_lite
