// The table of a library that is opened by its path, and the text of the last error.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "c_api/calls.h"

using tcim::internal::guarded;
using tcim_lite::ErrorCode;
using tcim_lite::fail;
using namespace tcim_lite::c_api;

namespace {

struct Closed {
  void operator()(void* library) const { dlclose(library); }
};

using Library = std::unique_ptr<void, Closed>;

struct Opened {
  std::mutex mutex;
  Library library;
  std::string path;
};

// Never destroyed: destructors of static objects may still call what it holds.
Opened& opened() {
  static auto* const instance = new Opened;
  return *instance;
}

std::string last_failure() {
  const char* text = dlerror();
  return text == nullptr ? "no reason is given" : text;
}

void* symbol(const Library& library, const std::string& path, const char* name) {
  void* const found = dlsym(library.get(), name);
  if (found == nullptr)
    fail(ErrorCode::Argument, path, " has no function ", name, "; expected libtcim_runtime_c_api.so");
  return found;
}

tcim_api_table_t table_of(const Library& library, const std::string& path) {
  tcim_api_table_t table;
#define TCIM_LITE_LOOK_UP(result, name, parameters) \
  table.name = reinterpret_cast<name##_fn>(symbol(library, path, #name "_impl"));
  TCIM_C_API_CALLS(TCIM_LITE_LOOK_UP)
#undef TCIM_LITE_LOOK_UP
  return table;
}

}  // namespace

bool tcim_load_library(const char* library_path, tcim_api_table_t* api_table) {
  const tcim::Status status = guarded(__func__, [&] {
    const std::string path = text(library_path, "library_path");
    if (api_table == nullptr) fail(ErrorCode::Argument, "api_table is NULL");
    Opened& all = opened();
    const std::lock_guard lock(all.mutex);
    if (all.library != nullptr) {
      if (path != all.path) fail(ErrorCode::Argument, all.path, " is loaded; call tcim_unload_library before ", path);
      *api_table = table_of(all.library, path);
      return;
    }
    Library library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (library == nullptr) fail(ErrorCode::Argument, last_failure());
    *api_table = table_of(library, path);
    all.path = path;
    all.library = std::move(library);
  });
  return status == tcim::OK;
}

void tcim_unload_library(void) {
  guarded(__func__, [] {
    Opened& all = opened();
    const std::lock_guard lock(all.mutex);
    all.library.reset();
  });
}

const char* tcim_get_last_error(void) {
  static thread_local char kept[1024];  // without a destructor, so that those of other objects may ask
  guarded(__func__, [] {
    const std::string last = tcim::GetLastError();
    const size_t length = std::min(last.size(), sizeof(kept) - 1);
    std::memcpy(kept, last.data(), length);
    kept[length] = '\0';
  });
  return kept;
}
