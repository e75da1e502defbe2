#include "hmm/sections.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "hmm/cursor.h"
#include "hmm/foreign.h"
#include "hmm/sha256.h"

namespace tcim_lite::hmm {
namespace {

constexpr std::string_view kDamaged = "; the file is damaged, copy it again";

std::string hex(uint32_t number) {
  std::string text(8, '0');
  for (size_t i = 0; i < 8; ++i) text[i] = "0123456789abcdef"[(number >> (28 - 4 * i)) & 15];
  return text;
}

// Text that fills a field up with NUL.
template <size_t N>
std::string padded_text(const char (&field)[N], const std::string& what) {
  const char* end = std::find(field, field + N, '\0');
  if (end == field || end == field + N || std::any_of(end, field + N, [](char c) { return c != '\0'; }))
    fail(ErrorCode::Format, what, " is not text padded with NUL; write the file again");
  return decode_text(std::as_bytes(std::span(field, size_t(end - field))), what);
}

std::string section_name(uint32_t kind) {
  switch (kind) {
    case kGraph:
      return "graph";
    case kCustomMsg:
      return "custom_msg";
    case kWeightTable:
      return "weight_table";
    case kPayload:
      return "payload";
    case kSibling:
      return "sibling";
    case kSplit:
      return "split";
    case kPorts:
      return "ports";
  }
  return concat("kind ", kind);
}

}  // namespace

Sections::Sections(std::span<const std::byte> bytes, const std::string& label) : bytes_(bytes), label_(label) {
  read_header();
  read_sections();
  check_id();
}

void Sections::read_header() {
  if (bytes_.empty()) refuse("the file is empty (interrupted copy or download?); write or copy it again");
  const auto has_magic = [&](const char* magic) {
    return bytes_.size() >= 8 && std::memcmp(bytes_.data(), magic, 8) == 0;
  };
  if (!has_magic(kMagicModel) && !has_magic(kMagicWeights))
    refuse("not a .hmm of this project: ", describe_foreign(bytes_));
  kind_ = has_magic(kMagicModel) ? FileKind::Model : FileKind::Weights;
  if (bytes_.size() < sizeof(Header)) refuse(bytes_.size(), " bytes, the header alone takes 128; copy the file again");
  std::memcpy(&header_, bytes_.data(), sizeof(Header));
  if (header_.version_major != kVersionMajor)
    refuse("format version ", header_.version_major, ".", header_.version_minor, ", this reader knows ", kVersionMajor,
           ".x; ", header_.version_major > kVersionMajor ? "update tcim_lite" : "compile the model again");
  if (header_.header_bytes != sizeof(Header)) refuse("header_bytes is ", header_.header_bytes, ", expected 128");
  if (header_.file_bytes != bytes_.size())
    refuse(bytes_.size(), " bytes are present, the header says ", header_.file_bytes, "; ",
           header_.file_bytes > bytes_.size() ? "copy it again" : "something was appended");
  if (header_.section_count < 1 || header_.section_count > kMaxSections)
    refuse("section_count is ", header_.section_count, ", expected 1 to ", kMaxSections);
  if (header_.section_table_offset != sizeof(Header))
    refuse("section_table_offset is ", header_.section_table_offset, ", expected 128");
  front_bytes_ = sizeof(Header) + header_.section_count * sizeof(SectionEntry);
  if (front_bytes_ > bytes_.size())
    refuse("a table of ", header_.section_count, " sections does not fit ", bytes_.size(), " bytes");
  check_header_crc();
  target_ = padded_text(header_.target, label_ + ": target");
  if (target_ != kTarget) refuse("compiled for target '", target_, "', expected '", kTarget, "'; compile again");
  if (header_.ncore < 1 || header_.ndevice < 1)
    refuse("ncore is ", header_.ncore, " and ndevice is ", header_.ndevice, ", both must be at least 1");
  if (header_.ndevice > kMaxParts)
    refuse("ndevice is ", header_.ndevice, ", expected at most ", kMaxParts, "; compile for fewer devices");
  producer_ = padded_text(header_.producer, label_ + ": producer");
}

void Sections::check_header_crc() const {
  Header zeroed = header_;
  zeroed.crc32c = 0;
  uint32_t crc = crc32c(std::as_bytes(std::span(&zeroed, 1)));
  crc = crc32c(bytes_.subspan(sizeof(Header), front_bytes_ - sizeof(Header)), crc);
  if (crc != header_.crc32c)
    refuse("header and section table have CRC-32C ", hex(crc), ", expected ", hex(header_.crc32c), kDamaged);
}

void Sections::read_sections() {
  sections_.resize(header_.section_count);
  std::memcpy(sections_.data(), bytes_.data() + sizeof(Header), front_bytes_ - sizeof(Header));
  for (size_t i = 0; i < sections_.size(); ++i) check_section(i);
  check_section_overlap();
  for (const SectionEntry& section : sections_) {
    if (section.kind == kPayload) continue;
    const uint32_t crc = crc32c(bytes_of(section));
    if (crc != section.crc32c)
      refuse("section ", section_name(section.kind), " has CRC-32C ", hex(crc), ", expected ", hex(section.crc32c),
             kDamaged);
  }
  if (kind_ == FileKind::Model) check_parts();
  if (find(kWeightTable) == nullptr) refuse("section weight_table is missing");
}

void Sections::check_section(size_t index) const {
  const SectionEntry& section = sections_[index];
  const std::string what = concat("section ", section_name(section.kind));
  const bool known = section.kind >= kGraph && section.kind <= (has_ports() ? kPorts : kSplit);
  if (!known && (section.flags & kSectionRequired) != 0)
    refuse(what, " is required and unknown to this reader; update tcim_lite");
  if (known && kind_ == FileKind::Weights && section.kind != kWeightTable && section.kind != kPayload)
    refuse(what, " does not belong into a .hmw");
  for (size_t other = 0; other < index; ++other) {
    if (sections_[other].kind == section.kind && (section.kind != kGraph || header_.ndevice == 1))
      refuse(what, " appears twice");
  }
  // A newer minor version may have given these bits a meaning that does not matter here (section 7).
  if (header_.version_minor <= kVersionMinor && (section.reserved != 0 || section.flags > 1))
    refuse(what, " has flags ", section.flags, " and reserved ", section.reserved, ", expected 0 or 1 and 0");
  const uint64_t alignment = section.kind == kPayload ? kPayloadAlignment : kAlignment;
  if (section.offset % alignment != 0)
    refuse(what, " is at offset ", section.offset, ", expected a multiple of ", alignment);
  if (section.offset < front_bytes_)
    refuse(what, " is at offset ", section.offset, ", inside the header and table of ", front_bytes_);
  if (section.bytes > bytes_.size() || section.offset > bytes_.size() - section.bytes)
    refuse(what, ": ", section.bytes, " bytes at offset ", section.offset, " lie outside a file of ", bytes_.size(),
           " bytes");
  if (section.kind == kPayload && section.crc32c != 0)
    refuse(what, " has a CRC-32C of ", hex(section.crc32c), ", expected 0");
}

void Sections::check_parts() const {
  if (find(kGraph) == nullptr) refuse("section graph is missing");
  const auto graphs = std::count_if(sections_.begin(), sections_.end(),
                                    [](const SectionEntry& section) { return section.kind == kGraph; });
  if (graphs != header_.ndevice)
    refuse("there are ", graphs, " graph sections, expected ", header_.ndevice, ", one for each device");
  if ((find(kSplit) != nullptr) != (header_.ndevice > 1))
    refuse("there must be a split section exactly when ndevice, which is ", header_.ndevice, ", is more than 1");
}

void Sections::check_section_overlap() const {
  std::vector<SectionEntry> ordered = sections_;
  std::sort(ordered.begin(), ordered.end(), [](const SectionEntry& a, const SectionEntry& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  for (size_t i = 1; i < ordered.size(); ++i) {
    const SectionEntry &first = ordered[i - 1], &second = ordered[i];
    if (second.offset < first.offset + first.bytes)
      refuse("sections at offsets ", first.offset, " (", first.bytes, " bytes) and ", second.offset, " overlap");
  }
}

void Sections::check_id() {
  Sha256 digest;
  for (const SectionEntry& section : sections_) {
    if (section.kind != kPayload) digest.update(bytes_of(section));
  }
  id_ = digest.finish();
  if (std::memcmp(id_.data(), header_.id, sizeof(header_.id)) != 0)
    refuse("the id in the header is not the SHA-256 of the sections; write the file again");
}

const SectionEntry* Sections::find(uint32_t kind) const {
  for (const SectionEntry& section : sections_) {
    if (section.kind == kind) return &section;
  }
  return nullptr;
}

std::optional<std::span<const std::byte>> Sections::bytes_of(uint32_t kind) const {
  const SectionEntry* section = find(kind);
  if (section == nullptr) return std::nullopt;
  return bytes_of(*section);
}

}  // namespace tcim_lite::hmm
