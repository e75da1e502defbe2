// Trace events of Chrome's format as text ("Trace Event Format", which Perfetto reads).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tcim_lite::layers {

// A row of the picture. Threads have their own ids, which Linux keeps below 2^22; the others begin above those. Viewers
// sort by 32 bits.
struct Lane {
  uint64_t tid = 0;
};
inline Lane stream_lane(uint64_t stream) { return {10'000'000 + stream % 400'000'000}; }
inline Lane device_lane(int device) { return {500'000'000 + uint64_t(device)}; }
constexpr Lane kLinkLane{600'000'000};

// "args" of an event: `{"bytes":12,...}`. Any bytes of a text become ASCII.
class Arguments {
 public:
  Arguments& add(std::string_view key, std::string_view text);
  Arguments& add(std::string_view key, uint64_t number);
  Arguments& add_ms(std::string_view key, uint64_t ns);
  std::string finish() const { return "{" + text_ + "}"; }

 private:
  void begin(std::string_view key);

  std::string text_;
};

// Several events; times in nanoseconds of the steady clock, which all processes of a machine share.
class EventText {
 public:
  explicit EventText(int pid) : pid_(pid) {}

  void slice(Lane lane, std::string_view name, std::string_view category, uint64_t begin, uint64_t end,
             const Arguments& arguments);
  // An arrow from a point in a slice to one that begins later. `id` is of this process.
  void flow(uint64_t id, Lane from, uint64_t at, Lane to, uint64_t then);
  void counter(std::string_view name, uint64_t at, const Arguments& series);
  void process_name(std::string_view name);
  // `order` sorts the lanes of the process, smallest first.
  void lane_name(Lane lane, std::string_view name, uint64_t order);

  const std::string& text() const noexcept { return text_; }

 private:
  void begin(std::string_view phase, std::string_view name);
  void at(uint64_t ns);

  const int pid_;
  std::string text_;
};

}  // namespace tcim_lite::layers
