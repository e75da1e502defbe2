// Loads argv[1], a library that uses the SDK, runs the model argv[2] with it and unloads it: threads of the pool are
// still in the SDK's code. The program has the C++ runtime already, which would keep the library if it came with it.
#include <dlfcn.h>

#include <iostream>

int main(int, char** argv) {
  const auto fails = [](const char* why) {
    std::cout << why << std::endl;
    return 1;
  };
  for (int i = 0; i < 2; ++i) {
    void* library = dlopen(argv[1], RTLD_NOW);
    if (library == nullptr) return fails(dlerror());
    const auto run = reinterpret_cast<int (*)(const char*)>(dlsym(library, "run_in_cpp"));
    const auto unload = reinterpret_cast<void (*)()>(dlsym(library, "unload_in_cpp"));
    if (run(argv[2]) != 0) return fails("the model does not run");
    unload();
    dlclose(library);
    if (dlopen("libtcim_runtime_lite.so", RTLD_NOW | RTLD_NOLOAD) == nullptr) return fails("the SDK is unloaded");
  }
}
