// One line of a trace: pairs of a key and a value, as text or JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/observer.h"

namespace tcim_lite::layers {

enum class TraceFormat { Text, Json };

class TraceLine {
 public:
  TraceLine(TraceFormat format, std::string_view kind, std::string_view name);

  void add(std::string_view key, std::string_view text);
  void add(std::string_view key, const char* text) { add(key, std::string_view(text)); }
  void add(std::string_view key, int64_t number);
  void add(std::string_view key, bool flag);
  void add(std::string_view key, const TensorFacts& tensor);

  // With its newline; the line is at its end then.
  std::string finish();

 private:
  void begin(std::string_view key);

  const TraceFormat format_;
  std::string text_;
};

}  // namespace tcim_lite::layers
