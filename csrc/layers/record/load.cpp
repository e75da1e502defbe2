#include "layers/record/load.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <system_error>

#include "layers/record/fingerprint.h"
#include "runtime/module.h"

namespace tcim_lite::layers {
namespace {

// The file's size, and a fingerprint of where its checksums are.
void add_file(RecordText& load, const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;  // a folder has a size too
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return;
  load.add("bytes", int64_t(file.tellg()));
  char head[4096];
  file.seekg(0);
  file.read(head, sizeof(head));
  const uint64_t hashed = fingerprint(std::as_bytes(std::span(head, size_t(file.gcount()))));
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(hashed));
  load.add("head", std::string_view(digits));
}

}  // namespace

void add_load(RecordText& text, const CallEvent& event) {
  const LoadOptions& options = *event.load;
  text.add_object("load", [&](RecordText& load) {
    load.add("devices", Shape(options.device_ids.begin(), options.device_ids.end()));
    if (!options.backend.empty()) load.add("backend", options.backend);
    if (options.weights != nullptr) load.add("weights", int64_t(options.weights->handle()));
    if (options.offset != 0) load.add("offset", int64_t(options.offset));
    if (options.size != 0) load.add("size", int64_t(options.size));
    if (!options.dummies.empty()) load.add("dummies", options.dummies);
    add_file(load, event.argument);
  });
}

}  // namespace tcim_lite::layers
