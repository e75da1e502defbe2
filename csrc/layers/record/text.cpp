#include "layers/record/text.h"

#include <cstdio>

#include "base/json_text.h"

namespace tcim_lite::layers {

// Keys are literals that need no escapes.
void RecordText::begin(std::string_view key) {
  if (text_.back() != '{') text_ += ',';
  text_ += '"';
  text_ += key;
  text_ += "\":";
}

void RecordText::add(std::string_view key, std::string_view text) {
  begin(key);
  text_ += json_quoted(text);
}

void RecordText::add(std::string_view key, int64_t number) {
  begin(key);
  text_ += std::to_string(number);
}

void RecordText::add(std::string_view key, bool flag) {
  begin(key);
  text_ += flag ? "true" : "false";
}

void RecordText::add(std::string_view key, const Shape& numbers) {
  begin(key);
  text_ += '[';
  for (const int64_t number : numbers) {
    if (text_.back() != '[') text_ += ',';
    text_ += std::to_string(number);
  }
  text_ += ']';
}

void RecordText::add(std::string_view key, const std::vector<std::string>& texts) {
  begin(key);
  text_ += '[';
  for (const std::string& text : texts) {
    if (text_.back() != '[') text_ += ',';
    text_ += json_quoted(text);
  }
  text_ += ']';
}

void RecordText::add(std::string_view key, const TensorFacts& tensor) {
  add_object(key, [&](RecordText& text) {
    text.add("id", int64_t(tensor.buffer));
    if (tensor.offset != 0) text.add("offset", int64_t(tensor.offset));
    text.add("dtype", name_of(tensor.dtype));
    text.add("shape", tensor.shape);
    text.add("device", int64_t(tensor.device_id));
  });
}

void RecordText::add(std::string_view key, const ValueFacts& values) {
  add_object(key, [&](RecordText& text) {
    char digits[32];
    std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(values.fingerprint));
    text.add("dtype", name_of(values.dtype));
    text.add("shape", values.shape);
    text.add("hash", std::string_view(digits));
    if (values.value) text.add("value", *values.value);
  });
}

void RecordText::add_list(std::string_view key, size_t count, const std::function<void(size_t, RecordText&)>& each) {
  begin(key);
  text_ += '[';
  for (size_t i = 0; i < count; ++i) {
    if (i != 0) text_ += ',';
    open();
    each(i, *this);
    text_ += '}';
  }
  text_ += ']';
}

void RecordText::add_object(std::string_view key, const std::function<void(RecordText&)>& fill) {
  begin(key);
  open();
  fill(*this);
  text_ += '}';
}

const std::string& RecordText::finish() { return text_ += '}'; }

}  // namespace tcim_lite::layers
