#include "layers/chrome/event_text.h"

#include <cstdio>

#include "base/error.h"
#include "base/json_text.h"

namespace tcim_lite::layers {
namespace {

std::string quoted(std::string_view text) {
  std::string ascii(text);
  for (char& c : ascii) c = static_cast<unsigned char>(c) < 0x80 ? c : '?';
  return json_quoted(ascii);
}

// Microseconds, to the nanosecond.
std::string microseconds(uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%llu.%03u", static_cast<unsigned long long>(ns / 1000), unsigned(ns % 1000));
  return text;
}

}  // namespace

void Arguments::begin(std::string_view key) { text_ += (text_.empty() ? "" : ",") + quoted(key) + ":"; }

Arguments& Arguments::add(std::string_view key, std::string_view text) {
  begin(key);
  text_ += quoted(text);
  return *this;
}

Arguments& Arguments::add(std::string_view key, uint64_t number) {
  begin(key);
  text_ += std::to_string(number);
  return *this;
}

Arguments& Arguments::add_ms(std::string_view key, uint64_t ns) {
  begin(key);
  char text[40];  // of integers: the program's locale may write 0.5 as 0,5
  std::snprintf(text, sizeof(text), "%llu.%06u", static_cast<unsigned long long>(ns / 1000000), unsigned(ns % 1000000));
  text_ += text;
  return *this;
}

void EventText::begin(std::string_view phase, std::string_view name) {
  text_ += concat(text_.empty() ? "" : ",\n", "{\"ph\":\"", phase, "\",\"name\":", quoted(name), ",\"pid\":", pid_);
}

void EventText::at(uint64_t ns) { text_ += ",\"ts\":" + microseconds(ns); }

void EventText::slice(Lane lane, std::string_view name, std::string_view category, uint64_t begin_ns, uint64_t end_ns,
                      const Arguments& arguments) {
  begin("X", name);
  at(begin_ns);
  text_ += concat(",\"dur\":", microseconds(end_ns - begin_ns), ",\"tid\":", lane.tid, ",\"cat\":", quoted(category),
                  ",\"args\":", arguments.finish(), "}");
}

void EventText::flow(uint64_t id, Lane from, uint64_t from_ns, Lane to, uint64_t to_ns) {
  // Viewers take an id for a hexadecimal number of 64 bits. Pids have at most 22.
  char name[24];
  std::snprintf(name, sizeof(name), "\"0x%llx\"", static_cast<unsigned long long>(uint64_t(pid_) << 42 | id));
  begin("s", "run");
  at(from_ns);
  text_ += concat(",\"tid\":", from.tid, ",\"cat\":\"run\",\"id\":", name, "}");
  begin("f", "run");
  at(to_ns);
  text_ += concat(",\"tid\":", to.tid, ",\"cat\":\"run\",\"bp\":\"e\",\"id\":", name, "}");
}

void EventText::counter(std::string_view name, uint64_t ns, const Arguments& series) {
  begin("C", name);
  at(ns);
  text_ += concat(",\"args\":", series.finish(), "}");
}

void EventText::process_name(std::string_view name) {
  begin("M", "process_name");
  text_ += concat(",\"args\":", Arguments().add("name", name).finish(), "}");
}

void EventText::lane_name(Lane lane, std::string_view name, uint64_t order) {
  begin("M", "thread_name");
  text_ += concat(",\"tid\":", lane.tid, ",\"args\":", Arguments().add("name", name).finish(), "}");
  begin("M", "thread_sort_index");
  text_ += concat(",\"tid\":", lane.tid, ",\"args\":", Arguments().add("sort_index", order).finish(), "}");
}

}  // namespace tcim_lite::layers
