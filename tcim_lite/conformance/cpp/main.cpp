#include <atomic>
#include <cstdlib>
#include <new>

#include "check.h"

// Allocations of this process, for cases that count them.
std::atomic<long> g_allocations{0};

void* operator new(size_t size) {
  ++g_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++g_allocations;
  return std::malloc(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

std::map<std::string, Case>& Cases() {
  static std::map<std::string, Case> cases;
  return cases;
}

int& Failures() {
  static int failures = 0;
  return failures;
}

int main(int argc, char** argv) {
  if (argc != 3) {  // lists the cases
    for (const auto& one : Cases()) std::cout << one.first << "\n";
    return 0;
  }
  Cases().at(argv[1])(argv[2]);
  return Failures() != 0;
}
