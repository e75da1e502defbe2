#include <locale>
#include <numeric>
#include <sstream>

#include "base/json_text.h"
#include "runtime/api_call.h"
#include "runtime/api_version.h"
#include "runtime/model_file.h"
#include "runtime/module.h"
#include "runtime/port.h"

namespace tcim_lite {
namespace {

// As numpy calls it, in capitals: "FLOAT16".
std::string capitals(DType dtype) {
  std::string name(name_of(dtype));
  for (char& letter : name) letter = letter >= 'a' && letter <= 'z' ? char(letter - 'a' + 'A') : letter;
  return name;
}

void list_ports(std::ostream& text, const char* key, const hmm::File& content, std::vector<uint32_t> Graph::* ids,
                const std::vector<int32_t>& axes) {
  text << "  \"" << key << "\": [";
  if (content.kind != hmm::FileKind::Weights) {
    std::vector<int> devices(content.ndevice);
    std::iota(devices.begin(), devices.end(), 0);
    const char* before = "\n    ";
    for (const Port& port : PortTable(content.parts, ids, axes, devices)) {
      const TensorInfo& info = port.info;
      text << before << "{\"name\": " << json_quoted(port.name()) << ", \"shape\": " << to_string(info.api_shape())
           << ", \"dtype\": \"" << capitals(info.dtype) << "\", \"format\": \"" << name_of(info.format) << "\"}";
      before = ",\n    ";
    }
    text << "\n  ";
  }
  text << "],\n";
}

}  // namespace

std::string describe_model(const std::string& path) {
  return api_call(
      host_call<"load_model_info">, [&](CallEvent& event) { event.argument = path; },
      [&] {
        const auto file = ModelFile::open(path);
        const hmm::File& content = file->content();
        std::ostringstream text;
        text.imbue(std::locale::classic());  // the program's own may group digits
        const bool has_graph = content.kind != hmm::FileKind::Weights;
        text << "{\n  \"info\": {\n    \"name\": " << json_quoted(has_graph ? content.graph().name : "") << ",\n";
        text << "    \"version\": \"V" << content.version_major << "." << content.version_minor << "\",\n";
        text << "    \"producer\": " << json_quoted(content.producer) << ",\n";
        text << "    \"target\": " << json_quoted(content.target) << ",\n";
        text << "    \"ncore\": " << content.ncore << ",\n";
        text << "    \"ndevice\": " << content.ndevice << ",\n";
        text << "    \"custom_msg\": " << json_quoted(content.custom_msg) << "\n  },\n";
        list_ports(text, "input", content, &Graph::inputs, content.split.inputs);
        list_ports(text, "output", content, &Graph::outputs, content.split.outputs);
        uint64_t bytes = 0;
        for (const hmm::WeightEntry& weight : content.weights) bytes += weight.bytes;
        text << "  \"weights\": {\"count\": " << content.weights.size() << ", \"bytes\": " << bytes
             << ", \"file\": " << json_quoted(content.sibling ? content.sibling->file : "") << "}\n}\n";
        return text.str();
      });
}

std::string version_text() {
  return api_call(host_call<"get_version">, Undescribed(), [] {
    // Programs of the vendor read the third line, and the time after its colon; ours is the same for equal sources.
    return concat(name_of(emulated_version()),
                  "\ntcim_lite " TCIM_LITE_VERSION " (open emulator)\n- Build Time: not recorded");
  });
}

}  // namespace tcim_lite
