// libFuzzer target over the reader and, for the graphs it accepts, the plan builder. Each input is read twice: as it
// is, and with sizes and checksums repaired, so that the fuzzer reaches what lies behind them.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cpu/plan_builder.h"
#include "base/error.h"
#include "hmm/layout.h"
#include "hmm/reader.h"
#include "hmm/sha256.h"

using namespace tcim_lite;

namespace {

void plan(const hmm::File& file) {
  uint64_t largest = 1;
  for (const hmm::WeightEntry& weight : file.weights) largest = std::max(largest, weight.bytes);
  if (largest > 1 << 20) return;
  const std::vector<std::byte> zeros(largest);
  std::vector<WeightBytes> weights;
  for (const hmm::WeightEntry& weight : file.weights) weights.emplace_back(zeros.data(), weight.bytes);
  try {
    for (const Graph& graph : file.parts) {
      for (const bool float_math : {false, true}) cpu::build_plan(graph, weights, float_math);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Unsupported) __builtin_trap();
  }
}

void parse(std::span<const std::byte> bytes) {
  hmm::File file;
  try {
    file = hmm::parse(bytes, "fuzz");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Format) __builtin_trap();
    return;
  }
  plan(file);
}

void repair(std::vector<std::byte>& bytes) {
  hmm::Header header;
  if (bytes.size() < sizeof(header)) return;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const size_t room = (bytes.size() - sizeof(header)) / sizeof(hmm::SectionEntry);
  header.file_bytes = bytes.size();
  header.section_count = uint32_t(std::min<size_t>(header.section_count % 8, room));
  hmm::Sha256 id;
  std::byte* table = bytes.data() + sizeof(header);
  for (uint32_t i = 0; i < header.section_count; ++i) {
    hmm::SectionEntry section;
    std::memcpy(&section, table + i * sizeof(section), sizeof(section));
    if (section.bytes > bytes.size() || section.offset > bytes.size() - section.bytes) continue;
    if (section.kind == hmm::kPayload) continue;
    const auto content = std::span<const std::byte>(bytes).subspan(section.offset, section.bytes);
    section.crc32c = hmm::crc32c(content);
    std::memcpy(table + i * sizeof(section), &section, sizeof(section));
    id.update(content);
  }
  const auto digest = id.finish();
  std::copy(digest.begin(), digest.end(), header.id);
  header.crc32c = 0;
  uint32_t crc = hmm::crc32c(std::as_bytes(std::span(&header, 1)));
  header.crc32c = hmm::crc32c({table, header.section_count * sizeof(hmm::SectionEntry)}, crc);
  std::memcpy(bytes.data(), &header, sizeof(header));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  parse(bytes);
  std::vector<std::byte> repaired(bytes.begin(), bytes.end());
  repair(repaired);
  parse(repaired);
  return 0;
}
