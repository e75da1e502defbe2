#include "layers/trace_text.h"

#include "base/json_text.h"

namespace tcim_lite::layers {

TraceLine::TraceLine(TraceFormat format, std::string_view kind, std::string_view name) : format_(format) {
  if (format_ == TraceFormat::Json) {
    text_ = "{\"event\":" + json_quoted(kind) + ",\"name\":" + json_quoted(name);
  } else {
    text_ = "tcim_lite " + std::string(kind) + " " + std::string(name);
  }
}

void TraceLine::begin(std::string_view key) {
  if (format_ == TraceFormat::Json) {
    text_ += "," + json_quoted(key) + ":";
  } else {
    text_ += " " + std::string(key) + "=";
  }
}

void TraceLine::add(std::string_view key, std::string_view text) {
  begin(key);
  text_ += json_quoted(text);
}

void TraceLine::add(std::string_view key, int64_t number) {
  begin(key);
  text_ += std::to_string(number);
}

void TraceLine::add(std::string_view key, bool flag) {
  begin(key);
  text_ += flag ? "true" : "false";
}

void TraceLine::add(std::string_view key, const TensorFacts& tensor) {
  begin(key);
  const std::string_view dtype = name_of(tensor.dtype);
  if (format_ == TraceFormat::Json) {
    std::string shape;
    for (const int64_t extent : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(extent);
    text_ += concat("{\"buffer\":", tensor.buffer, ",\"offset\":", tensor.offset, ",\"bytes\":", tensor.span_bytes,
                    ",\"device\":", tensor.device_id, ",\"dtype\":\"", dtype, "\",\"shape\":[", shape, "]}");
  } else {
    text_ +=
        concat(dtype, to_string(tensor.shape), tensor.device_id == kHost ? "@host" : "@device", "#", tensor.buffer);
    if (tensor.device_id > 0) text_ += concat("(device ", tensor.device_id, ")");
    if (tensor.offset != 0) text_ += concat("+", tensor.offset);
  }
}

std::string TraceLine::finish() { return text_ + (format_ == TraceFormat::Json ? "}\n" : "\n"); }

}  // namespace tcim_lite::layers
