#include "hmm_summary.h"

#include <cstring>
#include <map>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "hmm/layout.h"
#include "hmm/reader.h"

using namespace tcim_lite;

namespace {

std::string hex(uint32_t number) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", number);
  return text;
}

void add_sections(std::ostream& out, std::span<const std::byte> bytes) {
  static const char* kNames[] = {"", "graph", "custom_msg", "weight_table", "payload", "sibling", "split", "ports"};
  hmm::Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  std::vector<hmm::SectionEntry> sections(header.section_count);
  std::memcpy(sections.data(), bytes.data() + sizeof(header), sections.size() * sizeof(hmm::SectionEntry));
  for (const auto& section : sections) {
    const std::string name =
        section.kind <= hmm::kPorts ? kNames[section.kind] : "kind " + std::to_string(section.kind);
    out << "section " << name << " offset " << section.offset << " bytes " << section.bytes << " crc32c "
        << hex(section.crc32c) << "\n";
  }
}

void add_port_notes(std::ostream& out, const Value& value) {
  if (!value.role.name.empty()) out << " role " << value.role.name;
  if (value.role.layer >= 0) out << " layer " << value.role.layer;
  if (value.role.slot >= 0) out << " slot " << value.role.slot;
  for (const std::string& alias : value.aliases) out << " alias " << alias;
}

// `stored_ports`: of an older version the aliases are the reader's.
void add_graph(std::ostream& out, const Graph& graph, bool stored_ports) {
  out << "graph " << graph.name << " values " << graph.values.size() << " ops " << graph.ops.size() << "\n";
  const auto add_values = [&](const char* what, const std::vector<uint32_t>& ids) {
    for (uint32_t id : ids) {
      const Value& value = graph.values[id];
      out << what << " " << value.name << " " << name_of(value.dtype) << " " << to_string(value.shape)
          << (value.kind == ValueKind::State ? " state" : "") << (id == graph.live_rows ? " live_rows" : "");
      if (stored_ports) add_port_notes(out, value);
      out << "\n";
    }
  };
  add_values("input", graph.inputs);
  add_values("output", graph.outputs);
  std::map<std::string_view, int> counts;
  for (const Op& op : graph.ops) ++counts[name_of(op.kind)];
  for (const auto& [name, count] : counts) out << "op " << name << " x " << count << "\n";
}

void add_split(std::ostream& out, const Split& split) {
  out << "split inputs";
  for (const int32_t axis : split.inputs) out << " " << axis;
  out << " outputs";
  for (const int32_t axis : split.outputs) out << " " << axis;
  out << "\n";
}

}  // namespace

std::string summarize(std::span<const std::byte> bytes, const std::string& label) {
  const hmm::File file = hmm::parse(bytes, label);
  std::ostringstream out;
  out << (file.kind == hmm::FileKind::Model ? "model" : "weights") << " version " << file.version_major << "."
      << file.version_minor << " target " << file.target << " ncore " << file.ncore << " ndevice " << file.ndevice
      << " bytes " << bytes.size() << "\nproducer " << file.producer << "\nid " << hmm::to_hex(file.id) << "\n";
  add_sections(out, bytes);
  if (file.sibling) out << "sibling " << file.sibling->file << " id " << hmm::to_hex(file.sibling->id) << "\n";
  if (!file.custom_msg.empty()) out << "custom_msg " << file.custom_msg << "\n";
  for (const Graph& graph : file.parts) add_graph(out, graph, file.version_minor >= hmm::kMinorOfPorts);
  if (file.parts.size() > 1) add_split(out, file.split);
  for (const hmm::WeightEntry& entry : file.weights) {
    if (!entry.external && hmm::crc32c(bytes.subspan(entry.offset, entry.bytes)) != entry.crc32c)
      fail(ErrorCode::Format, label, ": weight '", entry.name, "' is damaged");
    out << "weight " << entry.name << " " << name_of(entry.format) << " " << name_of(entry.dtype) << " "
        << to_string(entry.shape) << " bytes " << entry.bytes << " "
        << (entry.external ? "external" : "offset " + std::to_string(entry.offset)) << " crc32c " << hex(entry.crc32c)
        << " sha256 " << hmm::to_hex(entry.hash).substr(0, 16) << "\n";
  }
  return out.str();
}
