// An opened .hmm or .hmw: its parsed content, its bytes, and which of its weights have been checked in this process.
// Modules of the same file share one; immutable but for the checks. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "hmm/reader.h"
#include "runtime/abort.h"

namespace tcim_lite {

// SHA-256 is uniform: its first bytes are a hash.
struct HashOfHash {
  size_t operator()(const hmm::Hash& hash) const noexcept;
};

std::string folder_of(const std::string& path);

class ModelFile {
 public:
  // Maps [offset, offset + size) of the file; size 0: to the end. A file that is still open is not mapped again, and
  // one that was checked before is not checked again, as long as device, inode, size and time of change agree.
  static std::shared_ptr<const ModelFile> open(const std::string& path, uint64_t offset = 0, uint64_t size = 0);
  // Copies the bytes [offset, offset + size); size 0: to the end.
  static std::shared_ptr<const ModelFile> from_bytes(std::span<const std::byte> bytes, uint64_t offset = 0,
                                                     uint64_t size = 0);

  const std::string& label() const noexcept { return label_; }
  const hmm::File& content() const noexcept { return content_; }
  // The folder siblings are looked for in; none for a model from memory.
  const std::optional<std::string>& folder() const noexcept { return folder_; }

  // A sentence that says how the file on disk has changed since it was mapped; empty if it has not
  // (hmm::Bytes::change).
  std::string change() const { return bytes_->change(); }
  std::span<const std::byte> bytes_of(const hmm::WeightEntry& entry) const;
  // hmm::Bytes::poke: changes what every module of this process that uses the file reads there.
  bool poke(const hmm::WeightEntry& entry, uint64_t byte, std::byte value) const noexcept;
  // The index of the stored weight with this content, or -1.
  int64_t find(const hmm::Hash& hash) const;

  // Compares, in parallel, the checksums of those weights that have not been checked yet. Throws Error(Format) naming
  // the first weight that differs, and Error(Aborted) if the caller asks to stop. TCIM_LITE_VERIFY=off skips it.
  void verify(std::span<const uint32_t> weights, const ShouldAbort& should_abort = {}) const;

 private:
  using Checked = std::vector<std::atomic<bool>>;  // by weight

  // Errors of the format call it `part`.
  ModelFile(std::string label, std::shared_ptr<const hmm::Bytes> bytes, const std::string& part);

  std::string label_;
  std::optional<std::string> folder_;
  std::shared_ptr<const hmm::Bytes> bytes_;
  hmm::File content_;
  std::unordered_map<hmm::Hash, uint32_t, HashOfHash> by_hash_;
  std::shared_ptr<Checked> checked_;
};
}  // namespace tcim_lite
