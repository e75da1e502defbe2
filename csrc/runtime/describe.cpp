#include <sstream>

#include "runtime/api_call.h"
#include "runtime/model_file.h"
#include "runtime/module.h"

namespace tcim_lite {
namespace {

void list_values(std::ostream& text, const char* title, const Graph& graph, const std::vector<uint32_t>& ids) {
  text << title << ": " << ids.size() << "\n";
  for (const uint32_t id : ids) {
    const Value& value = graph.values[id];
    text << "  " << value.name << ": shape: " << to_string(value.shape) << ", dtype: " << name_of(value.dtype)
         << ", format: ND\n";
  }
}

}  // namespace

std::string describe_model(const std::string& path) {
  const ApiCall call("load_model_info");
  const auto file = ModelFile::open(path);
  const hmm::File& content = file->content();
  std::ostringstream text;
  text << "name: " << (content.kind == hmm::FileKind::Weights ? "(weights)" : content.graph.name) << "\n";
  text << "version: V" << content.version_major << "." << content.version_minor << "\n";
  text << "producer: " << content.producer << "\n";
  text << "target: " << content.target << "\n";
  text << "ncore: " << content.ncore << "\n";
  text << "ndevice: " << content.ndevice << "\n";
  list_values(text, "inputs", content.graph, content.graph.inputs);
  list_values(text, "outputs", content.graph, content.graph.outputs);
  uint64_t bytes = 0;
  for (const hmm::WeightEntry& weight : content.weights) bytes += weight.bytes;
  text << "weights: " << content.weights.size() << " (" << bytes << " bytes)\n";
  if (content.sibling) text << "weights file: " << content.sibling->file << "\n";
  text << "custom_msg: " << content.custom_msg << "\n";
  return text.str();
}

std::string version_text() { return "v1.4.0\ntcim_lite " TCIM_LITE_VERSION " (open emulator)"; }

}  // namespace tcim_lite
