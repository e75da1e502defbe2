#include "hmm/bus_error.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>

namespace tcim_lite::hmm {
namespace {

// More mappings than a process has models; those beyond stay unnamed.
constexpr size_t kSlots = 4096;
std::atomic<const NamedMapping*> g_mappings[kSlots];

struct sigaction g_previous;  // written before the handler is installed

void write_text(const char* text) noexcept {
  for (size_t left = std::strlen(text); left > 0;) {
    const ssize_t written = write(STDERR_FILENO, text, left);
    if (written <= 0) return;
    text += written;
    left -= size_t(written);
  }
}

// Only what a signal handler may call. The instruction that failed is tried again after it, with the handler that was
// there before.
void on_bus_error(int signal, siginfo_t* info, void*) {
  const bool is_fault = info->si_code > 0;  // else somebody sent it
  for (const auto& slot : g_mappings) {
    const NamedMapping* const mapping = slot.load(std::memory_order_acquire);
    if (!is_fault || mapping == nullptr || !mapping->holds(info->si_addr)) continue;
    write_text("tcim_lite: SIGBUS: ");
    write_text(mapping->path().c_str());
    write_text(
        " became shorter while it was loaded, or its disk failed: its weights can no longer be read. Replace a loaded "
        "file by rename, never in place, or set TCIM_LITE_WEIGHTS=copy (docs/environment.md)\n");
  }
  sigaction(signal, &g_previous, nullptr);
  if (!is_fault) raise(signal);
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, nullptr, &g_previous) == 0) sigaction(SIGBUS, &action, nullptr);
  });
}

}  // namespace

NamedMapping::NamedMapping(std::string path, std::span<const std::byte> bytes) : path_(std::move(path)), bytes_(bytes) {
  install_handler();
  for (slot_ = 0; slot_ < kSlots; ++slot_) {
    const NamedMapping* unused = nullptr;
    if (g_mappings[slot_].compare_exchange_strong(unused, this, std::memory_order_release)) return;
  }
}

NamedMapping::~NamedMapping() {
  if (slot_ < kSlots) g_mappings[slot_].store(nullptr, std::memory_order_release);
}

bool NamedMapping::holds(const void* address) const noexcept {
  const auto* const byte = static_cast<const std::byte*>(address);
  return !std::less<>()(byte, bytes_.data()) && std::less<>()(byte, bytes_.data() + bytes_.size());
}

}  // namespace tcim_lite::hmm
