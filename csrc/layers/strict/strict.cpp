#include "layers/strict/strict.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>

#include "base/env.h"
#include "base/error.h"
#include "layers/strict/call_rules.h"
#include "layers/strict/report.h"
#include "layers/strict/run_rules.h"
#include "layers/strict/shadow.h"

namespace tcim_lite::layers {
namespace {

// NaN as a float, -1 as an integer.
constexpr std::byte kPoison{0xff};

class Strict final : public Observer {
 public:
  explicit Strict(StrictMode mode) : mode_(mode) {}

  void begin(const CallEvent& event) override {
    const bool is_run = event.name == std::string_view("Module.run");
    // Found before the lock is taken, because finding it waits for Python's lock.
    std::string site = is_run ? place(event) : std::string();
    Found found;
    {
      const std::lock_guard lock(mutex_);
      found = check_call(shadow_, event);
      if (is_run) queue_run(shadow_, event, site);
    }
    tell(found, event, std::move(site), true);
  }

  void end(const CallEvent& event) override {
    Found found;
    {
      const std::lock_guard lock(mutex_);
      if (event.error) {
        learn_failure(shadow_, event);
        found = check_error(event);
      } else {
        learn(shadow_, event);
      }
    }
    tell(found, event, {}, false);
  }

  void run_begin(const RunEvent& event) override {
    Found found;
    std::string site;
    {
      const std::lock_guard lock(mutex_);
      found = check_run(shadow_, event, site);
    }
    for (const auto& [code, detail] : found) report(mode_, code, detail, site, true);
  }

  void run_end(const RunEvent& event) noexcept override {
    const std::lock_guard lock(mutex_);
    learn_run(shadow_, event);
  }

  void memory_made(const std::shared_ptr<Buffer>& buffer, Content content) noexcept override {
    const std::lock_guard lock(mutex_);
    shadow_.add_buffer(buffer, content);
    if (content != Content::Zero) poison(*buffer);
  }

 private:
  static std::string place(const CallEvent& event) {
    std::string site = call_site();
    return site.empty() ? event.name : site;
  }

  // In pieces, because memory on several devices has no single address.
  static void poison(Buffer& buffer) noexcept {
    std::byte block[4096];
    std::memset(block, int(kPoison), sizeof(block));
    for (uint64_t done = 0; done < buffer.bytes(); done += sizeof(block)) {
      buffer.write(done, std::min<uint64_t>(sizeof(block), buffer.bytes() - done), block);
    }
  }

  void tell(const Found& found, const CallEvent& event, std::string site, bool raise) {
    if (found.empty()) return;
    if (site.empty()) site = place(event);
    for (const auto& [code, detail] : found) report(mode_, code, detail, site, raise);
  }

  const StrictMode mode_;
  std::mutex mutex_;  // a leaf: nothing else is taken while it is held
  Shadow shadow_;
};

}  // namespace

std::optional<bool> strict_wanted() {
  const auto mode = env_text("TCIM_LITE_STRICT");
  if (!mode) return std::nullopt;
  if (mode == "off") return false;
  if (mode == "warn" || mode == "error") return true;
  fail(ErrorCode::Argument, "TCIM_LITE_STRICT='", *mode, "': expected off, warn or error");
}

std::shared_ptr<Observer> make_strict(const Options& options) {
  check_options("strict", options, {"mode"});
  std::string mode = setting(options, "mode", "TCIM_LITE_STRICT", "warn");
  if (mode == "off" && options.count("mode") == 0) mode = "warn";
  if (mode != "warn" && mode != "error") fail(ErrorCode::Argument, "strict: mode '", mode, "': expected warn or error");
  return std::make_shared<Strict>(mode == "error" ? StrictMode::Error : StrictMode::Warn);
}

}  // namespace tcim_lite::layers
