#include "layers/record/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "layers/record/fingerprint.h"

namespace tcim_lite::layers {
namespace {

struct FileHeader {
  char magic[8] = {'T', 'C', 'I', 'M', 'R', 'E', 'C', '\0'};
  uint16_t major = 1;
  uint16_t minor = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(FileHeader) == 16);

struct ChunkHeader {
  uint32_t kind;
  uint32_t compression;  // 0: none
  uint64_t stored_bytes;
  uint64_t plain_bytes;
};
static_assert(sizeof(ChunkHeader) == 24);

template <typename Value>
std::span<const std::byte> bytes_of(const Value& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

RecordFile::RecordFile(std::string path, std::string meta) : asked_(std::move(path)), meta_(std::move(meta)) {
  open_file(asked_);
  begin();
}

RecordFile::~RecordFile() { close(); }

void RecordFile::open_file(const std::string& path) {
  // Not blocking: opening a FIFO nobody reads would hang.
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (file < 0) fail(ErrorCode::Argument, "record: '", path, "' cannot be opened: ", std::strerror(errno));
  struct stat status;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(file);
    fail(ErrorCode::Argument, "record: '", path, "' is no regular file");
  }
  if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && path == asked_) {
    ::close(file);
    const std::string other = concat(asked_, ".", getpid());
    log(LogLevel::Warn, concat("record: another recording is written into '", asked_, "'; this one is ", other));
    return open_file(other);
  }
  if (ftruncate(file, 0) != 0) {
    ::close(file);
    fail(ErrorCode::Argument, "record: '", path, "' cannot be written: ", std::strerror(errno));
  }
  file_ = file;
  path_ = path;
}

void RecordFile::begin() {
  pid_ = getpid();
  records_ = 0;
  stored_.clear();
  if (write_all(bytes_of(FileHeader()))) write_chunk(Kind::Meta, bytes_of(std::string_view(meta_)));
}

void RecordFile::follow_fork() {
  if (file_ < 0 || pid_ == getpid()) return;
  ::close(std::exchange(file_, -1));
  try {
    open_file(concat(asked_, ".", getpid()));
    begin();
  } catch (const Error& error) {
    log(LogLevel::Error, error.what());
  }
}

void RecordFile::add_record(std::string_view line) {
  const std::lock_guard lock(mutex_);
  follow_fork();
  if (file_ < 0) return;
  ++records_;
  static constexpr std::string_view kNewline = "\n";
  write_chunk(Kind::Calls, bytes_of(line), bytes_of(kNewline));
}

void RecordFile::add_data(std::span<const std::byte> content, uint64_t fingerprint) {
  const std::lock_guard lock(mutex_);
  follow_fork();
  if (file_ < 0 || !stored_.insert(fingerprint).second) return;
  write_chunk(Kind::Data, bytes_of(fingerprint), content);
}

bool RecordFile::is_at(const std::string& path) noexcept {
  const std::lock_guard lock(mutex_);
  struct stat ours, its;
  return file_ >= 0 && fstat(file_, &ours) == 0 && stat(path.c_str(), &its) == 0 && ours.st_dev == its.st_dev &&
         ours.st_ino == its.st_ino;
}

void RecordFile::close() noexcept {
  const std::lock_guard lock(mutex_);
  if (file_ < 0) return;
  // A fork's child that recorded nothing has only the file of its parent.
  if (pid_ == getpid()) {
    const std::string end = concat("{\"records\":", records_, ",\"data\":", stored_.size(), "}");
    write_chunk(Kind::End, bytes_of(std::string_view(end)));
    if (file_ >= 0) flock(file_, LOCK_UN);  // the child of a fork may have the file as well
  }
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

void RecordFile::write_chunk(Kind kind, std::span<const std::byte> first, std::span<const std::byte> rest) {
  const uint64_t bytes = first.size() + rest.size();
  const ChunkHeader head{uint32_t(kind), 0, bytes, bytes};
  std::vector<std::byte> chunk(sizeof(head) + sizeof(uint64_t) + bytes);
  // The checksum is of head and content, so they are put together first; its own place is filled in last.
  std::byte* const at = chunk.data() + sizeof(uint64_t);
  std::memcpy(at, &head, sizeof(head));
  std::memcpy(at + sizeof(head), first.data(), first.size());
  if (!rest.empty()) std::memcpy(at + sizeof(head) + first.size(), rest.data(), rest.size());
  const uint64_t check = fingerprint({at, sizeof(head) + bytes});
  std::memcpy(chunk.data(), &head, sizeof(head));
  std::memcpy(chunk.data() + sizeof(head), &check, sizeof(check));
  write_all(chunk);
}

// Ends the recording if not all can be written: what follows a torn chunk could not be read.
bool RecordFile::write_all(std::span<const std::byte> bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = write(file_, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      log(LogLevel::Error, concat("record: '", path_, "' cannot be written (", std::strerror(count == 0 ? EIO : errno),
                                  "); the recording ends here"));
      ::close(std::exchange(file_, -1));
      return false;
    }
    done += size_t(count);
  }
  return true;
}

}  // namespace tcim_lite::layers
