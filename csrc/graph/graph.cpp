#include "graph/graph.h"

#include <array>

#include "base/error.h"

namespace tcim_lite {
namespace {

struct OpInfo {
  std::string_view name;
  uint16_t version;
};

constexpr auto kOps = std::to_array<OpInfo>({
#define TCIM_LITE_OP(name, version) {#name, version},
#include "graph/ops.def"
#undef TCIM_LITE_OP
});

const AttributeValue* find(const Op& op, std::string_view key) {
  for (const auto& [name, value] : op.attributes) {
    if (name == key) return &value;
  }
  return nullptr;
}

}  // namespace

std::string_view name_of(OpKind kind) { return kOps[size_t(kind)].name; }

uint16_t version_of(OpKind kind) { return kOps[size_t(kind)].version; }

std::optional<OpKind> find_op(std::string_view name) {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (kOps[i].name == name) return OpKind(i);
  }
  return std::nullopt;
}

int64_t Op::attribute(std::string_view key, int64_t fallback) const {
  const AttributeValue* value = find(*this, key);
  if (value == nullptr) return fallback;
  if (const auto* number = std::get_if<int64_t>(value)) return *number;
  fail(ErrorCode::Format, "op ", name_of(kind), ": attribute '", key,
       "' is not a whole number; compile the model again");
}

double Op::attribute(std::string_view key, double fallback) const {
  const AttributeValue* value = find(*this, key);
  if (value == nullptr) return fallback;
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* number = std::get_if<int64_t>(value)) return double(*number);
  fail(ErrorCode::Format, "op ", name_of(kind), ": attribute '", key, "' is not a number; compile the model again");
}

}  // namespace tcim_lite
