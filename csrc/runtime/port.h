// The inputs or outputs of a module: what each is called, what it looks like, and the memory it uses now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "runtime/tensor.h"

namespace tcim_lite {

enum class Side { Input, Output };

struct Port {
  TensorInfo info;                         // dense, on the module's device
  std::shared_ptr<Buffer> buffer;          // own or borrowed; null: an unbound dummy
  uint64_t offset = 0;                     // bytes into the buffer
  std::optional<Tensor> sink;              // of an output: a host tensor filled after every run
  Content content = Content::Unspecified;  // of its own memory, when new
  bool is_dummy = false;                   // named in set_dummy_tensors at load
  bool hides = false;                      // a mask: in what is copied to it, -infinity stands for -65504

  const std::string& name() const noexcept { return info.name; }
  Tensor tensor() const { return Tensor(info, buffer, offset); }
};

// Looks ports up by compiled name, by the aliases in the file, and either with a trailing `.hmcc.format` or with
// `_batch3` for `_batch_3` (C-18).
class PortTable {
 public:
  // Of the inputs or of the outputs of the model's parts.
  PortTable(std::span<const Graph> parts, std::vector<uint32_t> Graph::* ids, const std::vector<int32_t>& axes,
            const std::vector<int>& device_ids);

  size_t size() const noexcept { return ports_.size(); }
  // Without the taps, which come last and are found by name only.
  size_t counted() const noexcept { return counted_; }
  Port& operator[](size_t index) noexcept { return ports_[index]; }
  const Port& operator[](size_t index) const noexcept { return ports_[index]; }
  auto begin() noexcept { return ports_.begin(); }
  auto end() noexcept { return ports_.end(); }

  // Null when no port has the name.
  Port* find(std::string_view name);
  // "a, b, c and 56 more", without the taps
  std::string names() const;

 private:
  struct TextHash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  std::vector<Port> ports_;
  size_t counted_ = 0;
  std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> by_name_;
};

}  // namespace tcim_lite
