// The front of a container: its header, and the table that says where sections lie (docs/hmm-format.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "hmm/layout.h"
#include "hmm/reader.h"

namespace tcim_lite::hmm {

// Checks header, table, the checksums of all sections but the payload, and the id. What sections say is the reader's.
class Sections {
 public:
  // `bytes` and `label`, which names the file in messages, outlive it.
  Sections(std::span<const std::byte> bytes, const std::string& label);

  FileKind kind() const { return kind_; }
  const Header& header() const { return header_; }
  const std::string& target() const { return target_; }
  const std::string& producer() const { return producer_; }
  const std::vector<SectionEntry>& all() const { return sections_; }
  const Hash& id() const { return id_; }
  bool has_ports() const { return header_.version_minor >= kMinorOfPorts; }

  const SectionEntry* find(uint32_t kind) const;  // null if there is none
  std::span<const std::byte> bytes_of(const SectionEntry& section) const {
    return bytes_.subspan(section.offset, section.bytes);
  }
  std::optional<std::span<const std::byte>> bytes_of(uint32_t kind) const;

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorCode::Format, label_, ": ", parts...);
  }

  void read_header();
  void check_header_crc() const;
  void read_sections();
  void check_section(size_t index) const;
  void check_parts() const;
  void check_section_overlap() const;
  void check_id();

  std::span<const std::byte> bytes_;
  const std::string& label_;
  FileKind kind_;
  Header header_{};
  std::string target_, producer_;
  uint64_t front_bytes_ = 0;  // header and section table
  std::vector<SectionEntry> sections_;
  Hash id_;
};

}  // namespace tcim_lite::hmm
