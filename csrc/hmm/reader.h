// Reads .hmm and .hmw containers (docs/hmm-format.md is the only spec). Parsing is apart from opening, so the fuzz
// target calls parse() on bytes. Every failure is Error(Format) with its own message; nothing trusts the file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "graph/graph.h"
#include "graph/parts.h"
#include "graph/weight_format.h"

namespace tcim_lite::hmm {

using Hash = std::array<uint8_t, 32>;
std::string to_hex(const Hash& hash);

struct WeightEntry {
  std::string name;
  DType dtype;
  WeightFormat format;
  Shape shape;
  bool external;    // in the sibling .hmw, found there by hash
  uint64_t offset;  // from the start of the container, multiple of 64; 0 when external
  uint64_t bytes;
  Hash hash;        // SHA-256 of format, shape and packed bytes
  uint32_t crc32c;  // of the packed bytes
};

struct Sibling {
  std::string file;  // a bare file name in the folder of the .hmm
  Hash id;
};

enum class FileKind { Model, Weights };

// What a container says, without its payload.
struct File {
  FileKind kind;
  Hash id;
  uint16_t version_major, version_minor;
  std::string target;    // "xh2"
  std::string producer;  // "tcim_lite 0.1.0"
  uint32_t ncore;
  uint32_t ndevice;
  std::string custom_msg;          // JSON or empty; opaque here
  std::optional<Sibling> sibling;  // of a model with external weights
  std::vector<WeightEntry> weights;
  std::vector<Graph> parts;  // validated, one per device in rank order; none for FileKind::Weights
  Split split;               // how the parts share inputs and outputs; empty when there is one device

  const Graph& graph() const { return parts.front(); }
};

// `label` names the file in messages. Checks everything but the payload's checksums.
File parse(std::span<const std::byte> bytes, const std::string& label);

// Read-only memory: a mapped file, a part of one, or a copy of a caller's bytes. Immutable and shared.
class Bytes {
 public:
  virtual ~Bytes() = default;
  std::span<const std::byte> span() const noexcept { return span_; }
  // A sentence that says how the mapped file has changed since; empty if it has not, and for a copy. Only size and
  // modification time are compared, not the bytes.
  virtual std::string change() const { return {}; }
  // Changes one byte of what this process sees, never of the file. Others may read it meanwhile. False: the system
  // does not let it.
  virtual bool poke(uint64_t offset, std::byte value) const noexcept = 0;

 protected:
  std::span<const std::byte> span_;
};

// Maps [offset, offset + size) of the file; size 0 means to the end. An offset that leaves the weights unaligned to
// 64 bytes falls back to a copy, and TCIM_LITE_WEIGHTS=copy always makes one. Error(Format) when the file is missing,
// unreadable, a folder, or too short.
std::shared_ptr<const Bytes> map_file(const std::string& path, uint64_t offset = 0, uint64_t size = 0);

// Copies the caller's bytes into aligned memory.
std::shared_ptr<const Bytes> copy_bytes(std::span<const std::byte> bytes);

// CRC-32C (Castagnoli, as iSCSI), SSE4.2 where the CPU has it.
// `seed` is the CRC of what came before.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed = 0);
uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t seed = 0);  // what other CPUs run

}  // namespace tcim_lite::hmm
