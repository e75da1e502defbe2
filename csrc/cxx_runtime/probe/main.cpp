#include <dlfcn.h>

#include <cstdio>

// probe LIBRARY
int main(int, char** arguments) {
  void* const library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  void* const function = library == nullptr ? nullptr : dlsym(library, "tcim_lite_probe");
  if (function == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  return reinterpret_cast<int (*)()>(function)();
}
