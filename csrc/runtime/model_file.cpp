#include "runtime/model_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "runtime/crc_combine.h"
#include "runtime/missing_model.h"

namespace tcim_lite {
namespace {

constexpr uint64_t kChunkBytes = 4 << 20;  // of checksumming, per task
constexpr size_t kChunksPerQuestion = 16;  // between two calls of should_abort

// Which file this is, as long as nobody writes into it.
using FileKey = std::tuple<uint64_t, uint64_t, uint64_t, int64_t, int64_t, uint64_t, uint64_t>;

struct FileRecord {
  std::weak_ptr<const ModelFile> open;
  std::shared_ptr<std::vector<std::atomic<bool>>> checked;  // outlives the mapping: one check per process
};

struct FileCache {
  std::mutex mutex;
  std::map<FileKey, FileRecord> records;
};

FileCache& file_cache() {
  static auto* const cache = new FileCache;
  return *cache;
}

struct Piece {
  uint32_t weight;
  std::span<const std::byte> bytes;
  uint32_t crc = 0;
};

// The model in errors of the format: a wrong size of a part looks like a damaged file.
std::string part_of(const std::string& label, uint64_t offset, uint64_t size) {
  if (offset == 0 && size == 0) return label;
  return concat(label, " (", size, " bytes at ", offset, ", as set_model_offset says)");
}

}  // namespace

std::string folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

size_t HashOfHash::operator()(const hmm::Hash& hash) const noexcept {
  size_t value;
  std::memcpy(&value, hash.data(), sizeof(value));
  return value;
}

ModelFile::ModelFile(std::string label, std::shared_ptr<const hmm::Bytes> bytes, const std::string& part)
    : label_(std::move(label)), bytes_(std::move(bytes)), content_(hmm::parse(bytes_->span(), part)) {
  for (uint32_t i = 0; i < content_.weights.size(); ++i) {
    if (!content_.weights[i].external) by_hash_.emplace(content_.weights[i].hash, i);
  }
  checked_ = std::make_shared<Checked>(content_.weights.size());
}

std::shared_ptr<const ModelFile> ModelFile::open(const std::string& path, uint64_t offset, uint64_t size) {
  struct stat status;
  std::optional<FileKey> key;
  if (stat(path.c_str(), &status) == 0) {
    key = FileKey(uint64_t(status.st_dev), uint64_t(status.st_ino), uint64_t(status.st_size), status.st_ctim.tv_sec,
                  status.st_ctim.tv_nsec, offset, size);
    const std::lock_guard lock(file_cache().mutex);
    const auto found = file_cache().records.find(*key);
    if (found != file_cache().records.end()) {
      // Another folder may hold a link to the file, with other siblings.
      if (auto file = found->second.open.lock(); file != nullptr && file->folder_ == folder_of(path)) return file;
    }
  } else if (errno == ENOENT) {
    refuse_missing_model(path);
  }
  std::shared_ptr<ModelFile> file(new ModelFile(path, hmm::map_file(path, offset, size), part_of(path, offset, size)));
  file->folder_ = folder_of(path);
  if (key) {
    const std::lock_guard lock(file_cache().mutex);
    FileRecord& record = file_cache().records[*key];
    if (record.checked != nullptr && record.checked->size() == file->checked_->size()) file->checked_ = record.checked;
    record = {file, file->checked_};
  }
  return file;
}

std::shared_ptr<const ModelFile> ModelFile::from_bytes(std::span<const std::byte> bytes, uint64_t offset,
                                                       uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) {
    fail(ErrorCode::Argument, "set_model_offset: ", size, " bytes at ", offset, " lie outside a buffer of ",
         bytes.size(), " bytes");
  }
  const std::string label = "<memory>";
  auto model = hmm::copy_bytes(bytes.subspan(offset, size == 0 ? std::dynamic_extent : size));
  return std::shared_ptr<ModelFile>(new ModelFile(label, std::move(model), part_of(label, offset, size)));
}

std::span<const std::byte> ModelFile::bytes_of(const hmm::WeightEntry& entry) const {
  return bytes_->span().subspan(entry.offset, entry.bytes);
}

bool ModelFile::poke(const hmm::WeightEntry& entry, uint64_t byte, std::byte value) const noexcept {
  return bytes_->poke(entry.offset + byte, value);
}

int64_t ModelFile::find(const hmm::Hash& hash) const {
  const auto found = by_hash_.find(hash);
  return found == by_hash_.end() ? -1 : int64_t(found->second);
}

void ModelFile::verify(std::span<const uint32_t> weights, const ShouldAbort& should_abort) const {
  const std::string mode = env_text("TCIM_LITE_VERIFY").value_or("load");
  if (mode == "off") return;
  if (mode != "load") fail(ErrorCode::Argument, "TCIM_LITE_VERIFY='", mode, "': expected load or off");
  std::vector<Piece> pieces;
  // Once each: two weights of a graph may be one entry here, as equal norm weights are.
  for (const uint32_t weight : std::set<uint32_t>(weights.begin(), weights.end())) {
    if ((*checked_)[weight].load(std::memory_order_acquire)) continue;
    const auto bytes = bytes_of(content_.weights[weight]);
    for (size_t begin = 0; begin < bytes.size(); begin += kChunkBytes) {
      pieces.push_back({weight, bytes.subspan(begin, std::min<size_t>(kChunkBytes, bytes.size() - begin))});
    }
  }
  // Another thread may be checking the same weights; the second one finds them checked.
  const size_t step = should_abort ? kChunksPerQuestion : std::max<size_t>(1, pieces.size());
  for (size_t begin = 0; begin < pieces.size(); begin += step) {
    check_abort(should_abort);
    ThreadPool::instance().parallel_for(int64_t(std::min(step, pieces.size() - begin)), [&](int64_t index, int) {
      Piece& piece = pieces[begin + size_t(index)];
      if (!(*checked_)[piece.weight].load(std::memory_order_relaxed)) piece.crc = hmm::crc32c(piece.bytes);
    });
  }
  for (size_t i = 0; i < pieces.size();) {
    const uint32_t weight = pieces[i].weight;
    const hmm::WeightEntry& entry = content_.weights[weight];
    uint32_t crc = pieces[i].crc;
    for (++i; i < pieces.size() && pieces[i].weight == weight; ++i) {
      crc = crc32c_combine(crc, pieces[i].crc, pieces[i].bytes.size());
    }
    if ((*checked_)[weight].load(std::memory_order_acquire)) continue;
    if (crc != entry.crc32c) {
      fail(ErrorCode::Format, label_, ": weight '", entry.name, "' is damaged: its checksum is ", crc, ", expected ",
           entry.crc32c, "; copy or compile the file again");
    }
    (*checked_)[weight].store(true, std::memory_order_release);
  }
}

}  // namespace tcim_lite
