// What happens when, in modelled nanoseconds: runs on devices, and the host that waits for them. Nothing of it depends
// on how long anything takes here. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

namespace tcim_lite::layers {

class Timeline {
 public:
  // The host's time.
  uint64_t now() const;
  // The host does something else, or waits for something else.
  void pass(uint64_t ns);
  void wait_until(uint64_t at);

  // The host asks for the next runs of the module.
  void submit(uint64_t module);
  // A round takes `ns` on its devices. It begins when it has been asked for, at `earliest` or later, and when its
  // stream and devices are free: a device does one run at a time. Returns when it ends.
  uint64_t run(uint64_t module, uint64_t stream, std::span<const int> devices, uint64_t ns, uint64_t earliest = 0);
  // The last run of the stream takes longer: by so much, or so many times as long.
  void delay(uint64_t stream, uint64_t ns);
  void stretch(uint64_t stream, double factor);
  // When it ends.
  uint64_t end_of_last_run(uint64_t stream) const;

  // The host waits for what was asked for.
  void wait_for_stream(uint64_t stream);
  void wait_for_module(uint64_t module);
  void wait_for_devices();

  // How long the device has run things.
  uint64_t busy_ns(int device) const;
  void forget_module(uint64_t module);

 private:
  struct Run {
    uint64_t begin = 0, end = 0;
    uint64_t module = 0;
    std::vector<int> devices;
  };
  void make_longer(uint64_t stream, uint64_t ns);

  mutable std::mutex mutex_;
  uint64_t now_ = 0;
  std::map<uint64_t, uint64_t> submitted_, module_done_;  // by module
  std::map<uint64_t, Run> last_run_;                      // by stream
  std::map<int, uint64_t> device_free_, busy_;            // by device
};

}  // namespace tcim_lite::layers
