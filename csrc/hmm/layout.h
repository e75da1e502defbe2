// The bytes of .hmm and .hmw as they lie in the file. Section numbers are those of docs/hmm-format.md.
#pragma once

#include <bit>
#include <cstdint>

namespace tcim_lite::hmm {

static_assert(std::endian::native == std::endian::little, "the container is little-endian and read in place");

// Section 1.
constexpr uint32_t kMaxSections = 64;
constexpr uint32_t kMaxWeights = 65'536;
constexpr uint32_t kMaxValues = 65'536;
constexpr uint32_t kMaxOps = 65'536;
constexpr uint32_t kMaxAttributes = 64;  // of an op; every pair of keys is compared
constexpr uint32_t kMaxRank = 8;
constexpr uint32_t kMaxWeightRank = 4;
constexpr uint64_t kMaxExtent = uint64_t{1} << 40;
constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 48;
constexpr uint32_t kMaxNameBytes = 1024;
constexpr uint64_t kMaxCustomMsgBytes = 16u << 20;
constexpr uint64_t kMaxGraphBytes = 64u << 20;
constexpr uint32_t kMaxAliases = 16;
constexpr uint64_t kAlignment = 64;
constexpr uint64_t kPayloadAlignment = 4096;

// Section 2.
constexpr char kMagicModel[9] = "TCIMHMM\0";
constexpr char kMagicWeights[9] = "TCIMHMW\0";
constexpr uint16_t kVersionMajor = 1;
constexpr uint16_t kVersionMinor = 7;
constexpr char kTarget[] = "xh2";

struct Header {
  char magic[8];
  uint16_t version_major;
  uint16_t version_minor;
  uint32_t header_bytes;
  uint64_t file_bytes;
  uint32_t section_count;
  uint32_t ncore;
  uint8_t id[32];  // SHA-256 of all sections but the payload, in table order
  char target[16];
  char producer[32];
  uint32_t ndevice;
  uint32_t crc32c;  // of the header with this field zero, then the section table
  uint64_t section_table_offset;
};
static_assert(sizeof(Header) == 128);

// Section 3.
enum SectionKind : uint32_t {
  kGraph = 1,
  kCustomMsg = 2,
  kWeightTable = 3,
  kPayload = 4,
  kSibling = 5,
  kSplit = 6,
  kPorts = 7
};
constexpr uint32_t kSectionRequired = 1;
constexpr uint16_t kMinorOfPorts = 1;  // the first version that has the section

struct SectionEntry {
  uint32_t kind;
  uint32_t flags;
  uint64_t offset;  // from the start of the container
  uint64_t bytes;
  uint32_t crc32c;  // zero for the payload
  uint32_t reserved;
};
static_assert(sizeof(SectionEntry) == 32);

// Section 4.1.
struct WeightRecord {
  uint32_t name_offset;  // into the names
  uint32_t name_bytes;
  uint8_t dtype;
  uint8_t format;
  uint8_t rank;
  uint8_t external;
  uint32_t crc32c;
  uint64_t extents[4];
  uint64_t offset;
  uint64_t bytes;
  uint8_t hash[32];
};
static_assert(sizeof(WeightRecord) == 96);

}  // namespace tcim_lite::hmm
