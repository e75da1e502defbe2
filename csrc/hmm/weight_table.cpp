#include "hmm/weight_table.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "hmm/cursor.h"

namespace tcim_lite::hmm {
namespace {

// What format, dtype and shape imply; the extents are in range.
uint64_t expected_bytes(DType dtype, WeightFormat format, const Shape& shape, const std::string& what) {
  const auto checked = [&](uint64_t a, uint64_t b) {
    if (a > kMaxTensorBytes / b)
      fail(ErrorCode::Format, what, ": shape ", to_string(shape), " takes more than 2^48 bytes");
    return a * b;
  };
  if (format == WeightFormat::Dense) {
    uint64_t bytes = uint64_t(size_of(dtype));
    for (int64_t extent : shape) bytes = checked(bytes, uint64_t(extent));
    return bytes;
  }
  const DType wanted = layout_of(format).dtype;
  if (dtype != wanted)
    fail(ErrorCode::Format, what, ": format ", name_of(format), " has dtype ", name_of(wanted), ", got ",
         name_of(dtype));
  if (shape.size() != 2 && shape.size() != 3)
    fail(ErrorCode::Format, what, ": format ", name_of(format), " has a shape [N, K] or [E, N, K], got ",
         to_string(shape));
  const int64_t experts = shape.size() == 3 ? shape[0] : 1, outputs = shape[shape.size() - 2], inputs = shape.back();
  if (is_quantized(format) && inputs % kGroup != 0)
    fail(ErrorCode::Format, what, ": format ", name_of(format), " needs K to be a multiple of ", kGroup, ", got shape ",
         to_string(shape));
  // An extent is at most 2^40 and a block takes at most 64 bytes an input, so block_bytes cannot wrap.
  const auto blocks = uint64_t((outputs + kBlockOutputs - 1) / kBlockOutputs);
  return checked(checked(uint64_t(block_bytes(format, inputs)), blocks), uint64_t(experts));
}

WeightEntry decode_entry(const WeightRecord& record, uint32_t index, std::span<const std::byte> names,
                         const std::string& label) {
  if (record.name_bytes < 1 || record.name_bytes > kMaxNameBytes || record.name_bytes > names.size() ||
      record.name_offset > names.size() - record.name_bytes)
    fail(ErrorCode::Format, label, ": the name of weight ", index, " is ", record.name_bytes, " bytes at ",
         record.name_offset, " of ", names.size(), "; expected 1 to ", kMaxNameBytes, " bytes inside them");
  WeightEntry entry{};
  entry.name =
      decode_text(names.subspan(record.name_offset, record.name_bytes), concat(label, ": the name of weight ", index));
  const std::string what = concat(label, ": weight '", entry.name, "'");
  if (!is_device_dtype(record.dtype))
    fail(ErrorCode::Format, what, " has dtype ", int{record.dtype}, ", known are 1 to 8");
  if (!is_weight_format(record.format))
    fail(ErrorCode::Format, what, " has format ", int{record.format}, ", known are 0 to ", kWeightFormats - 1);
  if (record.rank < 1 || record.rank > kMaxWeightRank)
    fail(ErrorCode::Format, what, " has rank ", int{record.rank}, ", expected 1 to ", kMaxWeightRank);
  if (record.external > 1) fail(ErrorCode::Format, what, " has external ", int{record.external}, ", expected 0 or 1");
  for (uint32_t axis = 0; axis < kMaxWeightRank; ++axis) {
    const uint64_t extent = record.extents[axis];
    if (axis >= record.rank && extent != 0)
      fail(ErrorCode::Format, what, " has rank ", int{record.rank}, " and extent ", extent, " on axis ", axis,
           ", those beyond the rank must be 0");
    if (axis < record.rank && (extent < 1 || extent > kMaxExtent))
      fail(ErrorCode::Format, what, ": the shape has an extent outside 1 to 2^40: ", extent);
    if (axis < record.rank) entry.shape.push_back(int64_t(extent));
  }
  entry.dtype = DType(record.dtype);
  entry.format = WeightFormat(record.format);
  const uint64_t expected = expected_bytes(entry.dtype, entry.format, entry.shape, what);
  if (record.bytes != expected)
    fail(ErrorCode::Format, what, " has ", record.bytes, " bytes; ", name_of(entry.format), " ", name_of(entry.dtype),
         " ", to_string(entry.shape), " takes ", expected);
  entry.external = record.external == 1;
  entry.offset = record.offset;
  entry.bytes = record.bytes;
  std::copy(std::begin(record.hash), std::end(record.hash), entry.hash.begin());
  entry.crc32c = record.crc32c;
  return entry;
}

void check_overlap(const std::vector<WeightEntry>& weights, const std::string& label) {
  std::vector<const WeightEntry*> stored;
  for (const WeightEntry& entry : weights) {
    if (!entry.external) stored.push_back(&entry);
  }
  std::sort(stored.begin(), stored.end(), [](const WeightEntry* a, const WeightEntry* b) {
    return a->offset != b->offset ? a->offset < b->offset : a->bytes < b->bytes;
  });
  for (size_t i = 1; i < stored.size(); ++i) {
    const WeightEntry &first = *stored[i - 1], &second = *stored[i];
    if (second.offset >= first.offset + first.bytes) continue;
    if (first.offset != second.offset || first.bytes != second.bytes || first.hash != second.hash)
      fail(ErrorCode::Format, label, ": weights '", first.name, "' and '", second.name,
           "' overlap and are not the same");
  }
}

}  // namespace

std::vector<WeightEntry> decode_weight_table(std::span<const std::byte> bytes, const std::string& label) {
  Cursor cursor(bytes, label);
  const auto count = cursor.get<uint32_t>("the number of weights");
  const auto string_bytes = cursor.get<uint32_t>("the size of the names");
  const uint64_t expected = 8 + uint64_t{count} * sizeof(WeightRecord) + string_bytes;
  if (count > kMaxWeights) fail(ErrorCode::Format, label, " says ", count, " weights, the limit is ", kMaxWeights);
  if (expected != bytes.size())
    fail(ErrorCode::Format, label, " has ", bytes.size(), " bytes; ", count, " weights and ", string_bytes,
         " bytes of names take ", expected);
  const auto names = bytes.last(string_bytes);
  std::vector<WeightEntry> weights;
  weights.reserve(count);
  for (uint32_t index = 0; index < count; ++index)
    weights.push_back(decode_entry(cursor.get<WeightRecord>("a weight"), index, names, label));
  return weights;
}

void check_weights(const std::vector<WeightEntry>& weights, const SectionEntry* payload, FileKind kind,
                   const std::string& label) {
  std::unordered_set<std::string_view> names;
  const uint64_t begin = payload != nullptr ? payload->offset : 0;
  const uint64_t end = payload != nullptr ? payload->offset + payload->bytes : 0;
  for (const WeightEntry& entry : weights) {
    const std::string what = concat(label, ": weight '", entry.name, "'");
    if (!names.insert(entry.name).second) fail(ErrorCode::Format, what, " appears twice");
    if (entry.external) {
      if (kind == FileKind::Weights) fail(ErrorCode::Format, what, " is external, which a .hmw cannot have");
      if (entry.offset != 0)
        fail(ErrorCode::Format, what, " is external and has offset ", entry.offset, ", expected 0");
      continue;
    }
    if (entry.offset % kAlignment != 0)
      fail(ErrorCode::Format, what, " is at offset ", entry.offset, ", expected a multiple of ", kAlignment);
    if (entry.offset < begin || entry.bytes > end || entry.offset > end - entry.bytes)
      fail(ErrorCode::Format, what, ": ", entry.bytes, " bytes at offset ", entry.offset, " lie outside the payload (",
           begin, " to ", end, ")");
  }
  check_overlap(weights, label);
}

}  // namespace tcim_lite::hmm
