// Runs and failing calls while a thread and the process end: argv[1] is a model.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "tcim/tcim_runtime.h"

static tcim::Module s_module;

static void use(const char* where) {
  static size_t longer = 0;  // each message than the one before, so that none fits where that was kept
  const std::string missing = where + std::string(longer += 200, '.');
  const bool runs = s_module.Run(true) == tcim::OK;
  const bool fails = !tcim::Module::LoadFromFile(missing) && tcim::GetLastError().find(missing) != std::string::npos;
  std::printf("%s: %s\n", where, runs && fails ? "ok" : "wrong");
  std::fflush(stdout);
  if (!runs || !fails) _exit(1);
}

struct Ends {
  const char* where;
  explicit Ends(const char* name) : where(name) {}
  ~Ends() { use(where); }
};

static const Ends s_ends("destructor of a static object");

int main(int, char** argv) {
  s_module = tcim::Module(argv[1]);
  std::atexit([] { use("atexit"); });
  std::thread([] {
    // Made before the thread's first failure, so it ends after what keeps the text.
    static thread_local const Ends ends("destructor of a thread's object");
    (void)ends.where;
    use("thread");
  }).join();
  use("main");
}
