#include "hmm/reader.h"

#include <algorithm>

#include "base/error.h"
#include "hmm/cursor.h"
#include "hmm/graph_section.h"
#include "hmm/layout.h"
#include "hmm/legacy_aliases.h"
#include "hmm/ports_section.h"
#include "hmm/sections.h"
#include "hmm/weight_table.h"

namespace tcim_lite::hmm {
namespace {

// Parses one container. The members hold what its steps share.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& label) : label_(label), sections_(bytes, label) {}

  File parse() {
    const Header& header = sections_.header();
    file_.kind = sections_.kind();
    file_.id = sections_.id();
    file_.version_major = header.version_major;
    file_.version_minor = header.version_minor;
    file_.target = sections_.target();
    file_.producer = sections_.producer();
    file_.ncore = header.ncore;
    file_.ndevice = header.ndevice;
    file_.weights = decode_weight_table(*sections_.bytes_of(kWeightTable), concat(label_, ": weight_table section"));
    check_weights(file_.weights, sections_.find(kPayload), file_.kind, label_);
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

  void read_custom_msg() {
    const auto bytes = sections_.bytes_of(kCustomMsg);
    if (!bytes) return;
    if (bytes->size() > kMaxCustomMsgBytes) refuse("custom_msg has ", bytes->size(), " bytes, the limit is 16 MiB");
    file_.custom_msg = decode_text(*bytes, label_ + ": custom_msg");
  }

  void read_sibling() {
    if (const auto bytes = sections_.bytes_of(kSibling)) {
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
    for (const SectionEntry& section : sections_.all()) {
      if (section.kind == kGraph) read_graph(sections_.bytes_of(section));
    }
    if (file_.ndevice == 1) {
      if (!all_gathers(file_.graph()).empty())
        refuse("the graph has an AllGather, which needs ndevice to be 2 or more; it is 1");
      return;
    }
    Cursor cursor(*sections_.bytes_of(kSplit), label_ + ": split section");
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

  void read_ports() {
    if (!sections_.has_ports()) {
      for (Graph& part : file_.parts) add_legacy_aliases(part);
    } else if (const auto bytes = sections_.bytes_of(kPorts)) {
      decode_ports(*bytes, label_ + ": ports section", file_.parts);
    }
  }

  const std::string& label_;
  const Sections sections_;
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
