// The mutator of the fuzz targets: libFuzzer's own, after which most inputs get their sizes and checksums back, so that
// the fuzzer reaches what lies behind them.
#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "hmm/layout.h"
#include "hmm/reader.h"
#include "hmm/sha256.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

using namespace tcim_lite;

namespace {

using Bytes = std::span<std::byte>;

template <typename T>
T load(Bytes bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

template <typename T>
void store(Bytes bytes, uint64_t offset, const T& value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

bool inside(Bytes bytes, uint64_t offset, uint64_t count) {
  return count <= bytes.size() && offset <= bytes.size() - count;
}

// Of the weights that lie in the file; `table` is the weight table's section.
void repair_weights(Bytes bytes, const hmm::SectionEntry& table) {
  if (table.bytes < 8) return;
  const uint64_t room = (table.bytes - 8) / sizeof(hmm::WeightRecord);
  const uint64_t count = std::min<uint64_t>(load<uint32_t>(bytes, table.offset), room);
  for (uint64_t index = 0; index < count; ++index) {
    const uint64_t at = table.offset + 8 + index * sizeof(hmm::WeightRecord);
    auto weight = load<hmm::WeightRecord>(bytes, at);
    if (weight.external != 0 || !inside(bytes, weight.offset, weight.bytes)) continue;
    weight.crc32c = hmm::crc32c(bytes.subspan(weight.offset, weight.bytes));
    store(bytes, at, weight);
  }
}

void repair(Bytes bytes) {
  constexpr uint64_t kTable = sizeof(hmm::Header);
  if (bytes.size() < kTable) return;
  auto header = load<hmm::Header>(bytes, 0);
  const uint64_t room = (bytes.size() - kTable) / sizeof(hmm::SectionEntry);
  header.file_bytes = bytes.size();
  header.section_count = uint32_t(std::min<uint64_t>(header.section_count % 9, room));
  hmm::Sha256 id;
  for (uint32_t i = 0; i < header.section_count; ++i) {
    const uint64_t at = kTable + i * sizeof(hmm::SectionEntry);
    auto section = load<hmm::SectionEntry>(bytes, at);
    if (section.kind == hmm::kPayload || !inside(bytes, section.offset, section.bytes)) continue;
    if (section.kind == hmm::kWeightTable) repair_weights(bytes, section);
    const auto content = bytes.subspan(section.offset, section.bytes);
    section.crc32c = hmm::crc32c(content);
    store(bytes, at, section);
    id.update(content);
  }
  const auto digest = id.finish();
  std::copy(digest.begin(), digest.end(), header.id);
  header.crc32c = 0;
  const uint32_t crc = hmm::crc32c(std::as_bytes(std::span(&header, 1)));
  header.crc32c = hmm::crc32c(bytes.subspan(kTable, header.section_count * sizeof(hmm::SectionEntry)), crc);
  store(bytes, 0, header);
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (std::minstd_rand(seed)() % 8 != 0) repair(std::as_writable_bytes(std::span(data, size)));
  return size;
}
