#include "layers/trace_text.h"

#include <cstdio>

namespace tcim_lite::layers {
namespace {

// Bytes beyond ASCII are kept, because names are usually UTF-8.
std::string quoted(std::string_view text) {
  std::string made = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      made += '\\';
      made += c;
    } else if (c == '\n') {
      made += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", unsigned(c));
      made += escape;
    } else {
      made += c;
    }
  }
  return made + '"';
}

}  // namespace

TraceLine::TraceLine(TraceFormat format, std::string_view kind, std::string_view name) : format_(format) {
  if (format_ == TraceFormat::Json) {
    text_ = "{\"event\":" + quoted(kind) + ",\"name\":" + quoted(name);
  } else {
    text_ = "tcim_lite " + std::string(kind) + " " + std::string(name);
  }
}

void TraceLine::begin(std::string_view key) {
  if (format_ == TraceFormat::Json) {
    text_ += "," + quoted(key) + ":";
  } else {
    text_ += " " + std::string(key) + "=";
  }
}

void TraceLine::add(std::string_view key, std::string_view text) {
  begin(key);
  text_ += quoted(text);
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
