// What a call copies between the host and devices, over PCIe on the chip.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/observer.h"

namespace tcim_lite::layers {

enum class CopyTo { Device, Host };

struct CopyMade {
  CopyTo to;
  uint64_t bytes;
  int device;
  // Modelled.
  uint64_t link_ns;
  uint64_t host_ns;  // that the call takes beside the copy
  uint64_t modelled_ns() const { return link_ns + host_ns; }
};

// Of a call that has succeeded; nothing for a call that copies nothing between the two.
std::optional<CopyMade> copy_of(const CallEvent& event);

}  // namespace tcim_lite::layers
