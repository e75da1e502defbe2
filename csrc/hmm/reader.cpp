#include "hmm/reader.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "hmm/cursor.h"
#include "hmm/foreign.h"
#include "hmm/graph_section.h"
#include "hmm/layout.h"
#include "hmm/legacy_aliases.h"
#include "hmm/ports_section.h"
#include "hmm/sha256.h"
#include "hmm/weight_table.h"

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

// Parses one container. The members hold what its steps share.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& label) : bytes_(bytes), label_(label) {}

  File parse() {
    read_header();
    read_sections();
    check_id();
    file_.weights = decode_weight_table(*bytes_of(kWeightTable), concat(label_, ": weight_table section"));
    check_weights(file_.weights, find(kPayload), file_.kind, label_);
    read_custom_msg();
    read_sibling();
    if (file_.kind == FileKind::Model) {
      read_parts();
      read_ports();
    }
    return std::move(file_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorCode::Format, label_, ": ", parts...);
  }

  void read_header() {
    if (bytes_.empty()) refuse("the file is empty (interrupted copy or download?); write or copy it again");
    const auto has_magic = [&](const char* magic) {
      return bytes_.size() >= 8 && std::memcmp(bytes_.data(), magic, 8) == 0;
    };
    if (!has_magic(kMagicModel) && !has_magic(kMagicWeights))
      refuse("not a .hmm of this project: ", describe_foreign(bytes_));
    file_.kind = has_magic(kMagicModel) ? FileKind::Model : FileKind::Weights;
    if (bytes_.size() < sizeof(Header))
      refuse(bytes_.size(), " bytes, the header alone takes 128; copy the file again");
    std::memcpy(&header_, bytes_.data(), sizeof(Header));
    if (header_.version_major != kVersionMajor)
      refuse("format version ", header_.version_major, ".", header_.version_minor, ", this reader knows ",
             kVersionMajor, ".x; ",
             header_.version_major > kVersionMajor ? "update tcim_lite" : "compile the model again");
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
    const std::string target = padded_text(header_.target, label_ + ": target");
    if (target != kTarget) refuse("compiled for target '", target, "', expected '", kTarget, "'; compile again");
    if (header_.ncore < 1 || header_.ndevice < 1)
      refuse("ncore is ", header_.ncore, " and ndevice is ", header_.ndevice, ", both must be at least 1");
    if (header_.ndevice > kMaxParts)
      refuse("ndevice is ", header_.ndevice, ", expected at most ", kMaxParts, "; compile for fewer devices");
    file_.version_major = header_.version_major;
    file_.version_minor = header_.version_minor;
    file_.target = target;
    file_.producer = padded_text(header_.producer, label_ + ": producer");
    file_.ncore = header_.ncore;
    file_.ndevice = header_.ndevice;
  }

  void check_header_crc() const {
    Header zeroed = header_;
    zeroed.crc32c = 0;
    uint32_t crc = crc32c(std::as_bytes(std::span(&zeroed, 1)));
    crc = crc32c(bytes_.subspan(sizeof(Header), front_bytes_ - sizeof(Header)), crc);
    if (crc != header_.crc32c)
      refuse("header and section table have CRC-32C ", hex(crc), ", expected ", hex(header_.crc32c), kDamaged);
  }

  void read_sections() {
    sections_.resize(header_.section_count);
    std::memcpy(sections_.data(), bytes_.data() + sizeof(Header), front_bytes_ - sizeof(Header));
    for (size_t i = 0; i < sections_.size(); ++i) check_section(i);
    check_section_overlap();
    for (const SectionEntry& section : sections_) {
      if (section.kind == kPayload) continue;
      const uint32_t crc = crc32c(bytes_.subspan(section.offset, section.bytes));
      if (crc != section.crc32c)
        refuse("section ", section_name(section.kind), " has CRC-32C ", hex(crc), ", expected ", hex(section.crc32c),
               kDamaged);
    }
    if (file_.kind == FileKind::Model) check_parts();
    if (find(kWeightTable) == nullptr) refuse("section weight_table is missing");
  }

  void check_section(size_t index) const {
    const SectionEntry& section = sections_[index];
    const std::string what = concat("section ", section_name(section.kind));
    const bool known = section.kind >= kGraph && section.kind <= (has_ports() ? kPorts : kSplit);
    if (!known && (section.flags & kSectionRequired) != 0)
      refuse(what, " is required and unknown to this reader; update tcim_lite");
    if (known && file_.kind == FileKind::Weights && section.kind != kWeightTable && section.kind != kPayload)
      refuse(what, " does not belong into a .hmw");
    for (size_t other = 0; other < index; ++other) {
      if (sections_[other].kind == section.kind && (section.kind != kGraph || file_.ndevice == 1))
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

  void check_parts() const {
    if (find(kGraph) == nullptr) refuse("section graph is missing");
    const auto graphs = std::count_if(sections_.begin(), sections_.end(),
                                      [](const SectionEntry& section) { return section.kind == kGraph; });
    if (graphs != file_.ndevice)
      refuse("there are ", graphs, " graph sections, expected ", file_.ndevice, ", one for each device");
    if ((find(kSplit) != nullptr) != (file_.ndevice > 1))
      refuse("there must be a split section exactly when ndevice, which is ", file_.ndevice, ", is more than 1");
  }

  void check_section_overlap() const {
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

  void check_id() {
    Sha256 digest;
    for (const SectionEntry& section : sections_) {
      if (section.kind != kPayload) digest.update(bytes_.subspan(section.offset, section.bytes));
    }
    file_.id = digest.finish();
    if (std::memcmp(file_.id.data(), header_.id, sizeof(header_.id)) != 0)
      refuse("the id in the header is not the SHA-256 of the sections; write the file again");
  }

  void read_custom_msg() {
    const auto bytes = bytes_of(kCustomMsg);
    if (!bytes) return;
    if (bytes->size() > kMaxCustomMsgBytes) refuse("custom_msg has ", bytes->size(), " bytes, the limit is 16 MiB");
    file_.custom_msg = decode_text(*bytes, label_ + ": custom_msg");
  }

  void read_sibling() {
    if (const auto bytes = bytes_of(kSibling)) {
      Cursor cursor(*bytes, label_ + ": sibling section");
      Sibling sibling;
      sibling.id = cursor.get<Hash>("the id");
      sibling.file = cursor.text(kMaxNameBytes, "the file name");
      cursor.end();
      if (sibling.file.empty() || sibling.file == "." || sibling.file == ".." ||
          sibling.file.find_first_of("/\\") != std::string::npos)
        fail(ErrorCode::Format, cursor.label(), ": file name '", sibling.file, "' is not a bare file name");
      file_.sibling = std::move(sibling);
    }
    const bool external = std::any_of(file_.weights.begin(), file_.weights.end(),
                                      [](const WeightEntry& entry) { return entry.external; });
    if (external != file_.sibling.has_value())
      refuse("there must be a sibling section exactly when a weight is external");
  }

  void read_parts() {
    for (const SectionEntry& section : sections_) {
      if (section.kind == kGraph) read_graph(bytes_.subspan(section.offset, section.bytes));
    }
    if (file_.ndevice == 1) {
      if (!all_gathers(file_.graph()).empty())
        refuse("the graph has an AllGather, which needs ndevice to be 2 or more; it is 1");
      return;
    }
    Cursor cursor(*bytes_of(kSplit), label_ + ": split section");
    for (std::vector<int32_t>* axes : {&file_.split.inputs, &file_.split.outputs}) {
      for (const uint32_t axis : cursor.ids(cursor.count(kMaxValues, 4, "axes"), "the axes"))
        axes->push_back(int32_t(axis));
    }
    cursor.end();
    try {
      validate_parts(file_.parts, file_.split);
    } catch (const Error& error) {
      throw Error(error.code(), label_ + ": " + error.what());
    }
  }

  void read_graph(std::span<const std::byte> bytes) {
    const std::string label =
        label_ + ": graph section" + (file_.ndevice > 1 ? concat(" of device ", file_.parts.size()) : "");
    if (bytes.size() > kMaxGraphBytes) refuse("the graph has ", bytes.size(), " bytes, the limit is 64 MiB");
    const Graph& graph = file_.parts.emplace_back(decode_graph(bytes, label));
    try {
      validate(graph);
    } catch (const Error& error) {
      throw Error(error.code(), label + ": " + error.what());
    }
    for (const Value& value : graph.values) {
      if (value.kind != ValueKind::Weight) continue;
      if (value.weight >= file_.weights.size())
        fail(ErrorCode::Format, label, ": value '", value.name, "' names weight ", value.weight, ", the table has ",
             file_.weights.size());
      const WeightEntry& entry = file_.weights[value.weight];
      if (value.dtype != entry.dtype || value.format != entry.format || value.shape != entry.shape)
        fail(ErrorCode::Format, label, ": value '", value.name, "' is ", name_of(value.dtype), " ",
             name_of(value.format), " ", to_string(value.shape), ", its weight '", entry.name, "' is ",
             name_of(entry.dtype), " ", name_of(entry.format), " ", to_string(entry.shape));
    }
  }

  bool has_ports() const { return header_.version_minor >= kMinorOfPorts; }

  void read_ports() {
    if (!has_ports()) {
      for (Graph& part : file_.parts) add_legacy_aliases(part);
    } else if (const auto bytes = bytes_of(kPorts)) {
      decode_ports(*bytes, label_ + ": ports section", file_.parts);
    }
  }

  const SectionEntry* find(uint32_t kind) const {
    for (const SectionEntry& section : sections_) {
      if (section.kind == kind) return &section;
    }
    return nullptr;
  }

  std::optional<std::span<const std::byte>> bytes_of(uint32_t kind) const {
    const SectionEntry* section = find(kind);
    if (section == nullptr) return std::nullopt;
    return bytes_.subspan(section->offset, section->bytes);
  }

  std::span<const std::byte> bytes_;
  const std::string& label_;
  Header header_{};
  uint64_t front_bytes_ = 0;  // header and section table
  std::vector<SectionEntry> sections_;
  File file_{};
};

}  // namespace

std::string to_hex(const Hash& hash) {
  std::string text;
  for (const uint8_t byte : hash) text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  return text;
}

File parse(std::span<const std::byte> bytes, const std::string& label) { return Parser(bytes, label).parse(); }

}  // namespace tcim_lite::hmm
