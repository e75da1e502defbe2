// The records of a recording as JSON (docs/recording.md, section 4).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/observer.h"

namespace tcim_lite::layers {

// What is told of values: their fingerprint, and the value itself of a single integer.
struct ValueFacts {
  DType dtype;
  Shape shape;
  uint64_t fingerprint;
  std::optional<int64_t> value;
};

class RecordText {
 public:
  RecordText() { text_.reserve(512); }

  void add(std::string_view key, std::string_view text);
  void add(std::string_view key, int64_t number);
  void add(std::string_view key, bool flag);
  void add(std::string_view key, const Shape& numbers);
  void add(std::string_view key, const std::vector<std::string>& texts);
  void add(std::string_view key, const TensorFacts& tensor);
  void add(std::string_view key, const ValueFacts& values);
  // A list of objects; `each(i, text)` fills in the members of one.
  void add_list(std::string_view key, size_t count, const std::function<void(size_t, RecordText&)>& each);
  void add_object(std::string_view key, const std::function<void(RecordText&)>& fill);
  const std::string& finish();

 private:
  void begin(std::string_view key);
  void open() { text_ += '{'; }

  std::string text_ = "{";
};

}  // namespace tcim_lite::layers
