#include "graph/graph.h"

#include "base/error.h"

namespace tcim_lite {

const AttributeValue* Op::find(std::string_view key) const {
  for (const auto& [name, value] : attributes) {
    if (name == key) return &value;
  }
  return nullptr;
}

int64_t Op::attribute(std::string_view key, int64_t fallback) const {
  const AttributeValue* value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* number = std::get_if<int64_t>(value)) return *number;
  fail(ErrorCode::Format, "op ", name_of(kind), ": attribute '", key,
       "' is not a whole number; compile the model again");
}

double Op::attribute(std::string_view key, double fallback) const {
  const AttributeValue* value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* number = std::get_if<int64_t>(value)) return double(*number);
  fail(ErrorCode::Format, "op ", name_of(kind), ": attribute '", key, "' is not a number; compile the model again");
}

}  // namespace tcim_lite
