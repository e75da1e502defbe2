// Private to Module: what a module holds until it is released.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/api_version.h"
#include "runtime/module.h"

namespace tcim_lite {

struct Module::Loaded {
  std::shared_ptr<Program> program;
  std::shared_ptr<WeightStore> weights;  // C-22: the module keeps its manager
  std::string backend;
  bool always_sync;  // TCIM_XH2_USE_SYNC_MODE
  ApiVersion version;
  PortTable inputs;
  PortTable outputs;
  PortTable& ports(Side side) noexcept { return side == Side::Input ? inputs : outputs; }
  std::shared_ptr<Stream> stream;
  uint64_t ticket = 0;              // of the last queued run
  std::shared_ptr<BoundRun> bound;  // null: a binding has changed
};

}  // namespace tcim_lite
