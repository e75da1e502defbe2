#include <pthread.h>

#include <exception>
#include <sstream>
#include <string>

#include "core.h"

namespace {

// Gives the unwinder something to do in this library.
struct Count {
  explicit Count(int& count) : count(count) {}
  ~Count() { ++count; }
  int& count;
};

bool catches_what_the_core_throws() {
  int destroyed = 0;
  std::exception_ptr kept;
  try {
    const Count counted(destroyed);
    std::ostringstream text;
    text << 5;
    probe::fail(text.str().c_str());
  } catch (const probe::Error&) {
    kept = std::current_exception();
  }
  try {
    std::rethrow_exception(kept);
  } catch (const std::exception& error) {
    if (std::string(error.what()) != "core 1.5 5") return false;
  }
  return destroyed == 1 && probe::uncaught() == 0 && std::uncaught_exceptions() == 0;
}

// As Python ends daemon threads.
bool ends_a_thread() {
  static int destroyed = 0;
  pthread_t thread;
  const auto body = [](void*) -> void* {
    const Count counted(destroyed);
    pthread_exit(nullptr);
  };
  return pthread_create(&thread, nullptr, body, nullptr) == 0 && pthread_join(thread, nullptr) == 0 && destroyed == 1;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int tcim_lite_probe() {
  for (int round = 0; round < 2; ++round) {
    if (!catches_what_the_core_throws()) return 1;
  }
  return ends_a_thread() ? 0 : 2;
}
