#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/env.h"
#include "base/error.h"
#include "base/no_copy.h"
#include "hmm/bus_error.h"
#include "hmm/layout.h"
#include "hmm/reader.h"

namespace tcim_lite::hmm {
namespace {

class Descriptor : public NoCopy {
 public:
  // Not blocking: opening a FIFO nobody writes would hang.
  explicit Descriptor(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) fail_with_errno(path);
  }
  ~Descriptor() { close(fd_); }

  int get() const noexcept { return fd_; }

  [[noreturn]] static void fail_with_errno(const std::string& path) {
    const std::string reason = std::generic_category().message(errno);
    fail(ErrorCode::Format, path, ": cannot be read (", reason, "); check the path");
  }

 private:
  int fd_;
};

bool same_time(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

class Mapping : public Bytes {
 public:
  // [offset, offset + bytes) lies inside the file; bytes is not zero. `status` is that of the file.
  Mapping(std::unique_ptr<const Descriptor> file, const struct stat& status, const std::string& path, uint64_t offset,
          uint64_t bytes)
      : file_(std::move(file)), mapped_(status) {
    const uint64_t lead = offset % uint64_t(sysconf(_SC_PAGESIZE));
    mapped_bytes_ = lead + bytes;
    base_ = mmap(nullptr, mapped_bytes_, PROT_READ, MAP_PRIVATE, file_->get(), off_t(offset - lead));
    if (base_ == MAP_FAILED) Descriptor::fail_with_errno(path);
    const auto* const begin = static_cast<const std::byte*>(base_);
    span_ = {begin + lead, bytes};
    name_.emplace(path, std::span(begin, mapped_bytes_));
  }
  ~Mapping() override {
    name_.reset();
    munmap(base_, mapped_bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::string change() const override {
    struct stat now;
    // A program may have closed descriptors that it did not open, and the number may be another file's by now.
    if (fstat(file_->get(), &now) != 0 || now.st_dev != mapped_.st_dev || now.st_ino != mapped_.st_ino) return {};
    if (now.st_size != mapped_.st_size)
      return concat("'", name_->path(), "' had ", mapped_.st_size, " bytes when it was loaded and has ", now.st_size,
                    " now.");
    if (!same_time(now.st_mtim, mapped_.st_mtim))
      return concat("'", name_->path(), "' was written to after it was loaded.");
    return {};
  }

  // The mapping is private: the page that is written becomes this process's own.
  bool poke(uint64_t offset, std::byte value) const noexcept override {
    auto* const at = const_cast<std::byte*>(span_.data()) + offset;
    const auto page_bytes = uint64_t(sysconf(_SC_PAGESIZE));
    auto* const page = at - reinterpret_cast<uintptr_t>(at) % page_bytes;
    static std::mutex mutex;  // nobody protects the page again before it is written
    const std::lock_guard lock(mutex);
    if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
    *at = value;
    return mprotect(page, page_bytes, PROT_READ) == 0;
  }

 private:
  // Open for as long as the file is mapped: its path may name another file later.
  std::unique_ptr<const Descriptor> file_;
  const struct stat mapped_;
  void* base_;
  uint64_t mapped_bytes_;
  std::optional<NamedMapping> name_;
};

class Copy : public Bytes {
 public:
  explicit Copy(uint64_t bytes) : buffer_(bytes) { span_ = {buffer_.data(), bytes}; }
  std::byte* data() noexcept { return buffer_.data(); }
  bool poke(uint64_t offset, std::byte value) const noexcept override {
    buffer_.data()[offset] = value;
    return true;
  }

 private:
  AlignedBuffer buffer_;
};

std::shared_ptr<const Bytes> read_copy(const Descriptor& file, const std::string& path, uint64_t offset,
                                       uint64_t bytes) {
  auto copy = std::make_shared<Copy>(bytes);
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t count = pread(file.get(), copy->data() + done, bytes - done, off_t(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) Descriptor::fail_with_errno(path);
    if (count == 0) fail(ErrorCode::Format, path, ": became shorter while it was read; do not change a file in use");
    done += uint64_t(count);
  }
  return copy;
}

}  // namespace

std::shared_ptr<const Bytes> map_file(const std::string& path, uint64_t offset, uint64_t size) {
  auto file = std::make_unique<const Descriptor>(path);
  struct stat status;
  if (fstat(file->get(), &status) != 0) Descriptor::fail_with_errno(path);
  if (S_ISDIR(status.st_mode)) fail(ErrorCode::Format, path, ": is a folder; give the path of a .hmm in it");
  if (!S_ISREG(status.st_mode)) fail(ErrorCode::Format, path, ": is not a regular file; give the path of a .hmm");
  const auto file_bytes = uint64_t(status.st_size);
  if (offset > file_bytes || size > file_bytes - offset)
    fail(ErrorCode::Format, path, ": ", size, " bytes at offset ", offset, " lie outside a file of ", file_bytes,
         " bytes; check offset and size");
  const uint64_t bytes = size != 0 ? size : file_bytes - offset;
  const bool wanted_in_memory = env_is("TCIM_LITE_WEIGHTS", "copy", "map");
  if (wanted_in_memory || bytes == 0 || offset % kAlignment != 0) return read_copy(*file, path, offset, bytes);
  return std::make_shared<Mapping>(std::move(file), status, path, offset, bytes);
}

std::shared_ptr<const Bytes> copy_bytes(std::span<const std::byte> bytes) {
  auto copy = std::make_shared<Copy>(bytes.size());
  if (!bytes.empty()) std::memcpy(copy->data(), bytes.data(), bytes.size());
  return copy;
}

}  // namespace tcim_lite::hmm
