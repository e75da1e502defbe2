#include <locale>
#include <numeric>
#include <sstream>

#include "runtime/api_call.h"
#include "runtime/api_version.h"
#include "runtime/model_file.h"
#include "runtime/module.h"
#include "runtime/port.h"

namespace tcim_lite {
namespace {

void list_ports(std::ostream& text, const char* title, const hmm::File& content, std::vector<uint32_t> Graph::* ids,
                const std::vector<int32_t>& axes) {
  if (content.kind == hmm::FileKind::Weights) {
    text << title << ": 0\n";
    return;
  }
  std::vector<int> devices(content.ndevice);
  std::iota(devices.begin(), devices.end(), 0);
  PortTable ports(content.parts, ids, axes, devices);
  text << title << ": " << ports.size() << "\n";
  for (const Port& port : ports) {
    const TensorInfo& info = port.info;
    text << "  " << port.name() << ": shape: " << to_string(info.api_shape()) << ", dtype: " << name_of(info.dtype)
         << ", format: " << name_of(info.format) << "\n";
  }
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
        text << "name: " << (content.kind == hmm::FileKind::Weights ? "(weights)" : content.graph().name) << "\n";
        text << "version: V" << content.version_major << "." << content.version_minor << "\n";
        text << "producer: " << content.producer << "\n";
        text << "target: " << content.target << "\n";
        text << "ncore: " << content.ncore << "\n";
        text << "ndevice: " << content.ndevice << "\n";
        list_ports(text, "inputs", content, &Graph::inputs, content.split.inputs);
        list_ports(text, "outputs", content, &Graph::outputs, content.split.outputs);
        uint64_t bytes = 0;
        for (const hmm::WeightEntry& weight : content.weights) bytes += weight.bytes;
        text << "weights: " << content.weights.size() << " (" << bytes << " bytes)\n";
        if (content.sibling) text << "weights file: " << content.sibling->file << "\n";
        text << "custom_msg: " << content.custom_msg << "\n";
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
