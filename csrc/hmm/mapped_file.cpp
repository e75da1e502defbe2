#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "hmm/layout.h"
#include "hmm/reader.h"

namespace tcim_lite::hmm {
namespace {

class Descriptor {
 public:
  // Not blocking: opening a FIFO nobody writes would hang.
  explicit Descriptor(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) fail_with_errno(path);
  }
  ~Descriptor() { close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const noexcept { return fd_; }

  [[noreturn]] static void fail_with_errno(const std::string& path) {
    const std::string reason = std::generic_category().message(errno);
    fail(ErrorCode::Format, path, ": cannot be read (", reason, "); check the path");
  }

 private:
  int fd_;
};

class Mapping : public Bytes {
 public:
  // [offset, offset + bytes) lies inside the file; bytes is not zero.
  Mapping(const Descriptor& file, const std::string& path, uint64_t offset, uint64_t bytes) {
    const uint64_t lead = offset % uint64_t(sysconf(_SC_PAGESIZE));
    mapped_bytes_ = lead + bytes;
    base_ = mmap(nullptr, mapped_bytes_, PROT_READ, MAP_PRIVATE, file.get(), off_t(offset - lead));
    if (base_ == MAP_FAILED) Descriptor::fail_with_errno(path);
    span_ = {static_cast<const std::byte*>(base_) + lead, bytes};
  }
  ~Mapping() override { munmap(base_, mapped_bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

 private:
  void* base_;
  uint64_t mapped_bytes_;
};

class Copy : public Bytes {
 public:
  explicit Copy(uint64_t bytes) : buffer_(bytes) { span_ = {buffer_.data(), bytes}; }
  std::byte* data() noexcept { return buffer_.data(); }

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
  const Descriptor file(path);
  struct stat status;
  if (fstat(file.get(), &status) != 0) Descriptor::fail_with_errno(path);
  if (S_ISDIR(status.st_mode)) fail(ErrorCode::Format, path, ": is a folder; give the path of a .hmm in it");
  if (!S_ISREG(status.st_mode)) fail(ErrorCode::Format, path, ": is not a regular file; give the path of a .hmm");
  const auto file_bytes = uint64_t(status.st_size);
  if (offset > file_bytes || size > file_bytes - offset)
    fail(ErrorCode::Format, path, ": ", size, " bytes at offset ", offset, " lie outside a file of ", file_bytes,
         " bytes; check offset and size");
  const uint64_t bytes = size != 0 ? size : file_bytes - offset;
  if (bytes == 0 || offset % kAlignment != 0) return read_copy(file, path, offset, bytes);
  return std::make_shared<Mapping>(file, path, offset, bytes);
}

std::shared_ptr<const Bytes> copy_bytes(std::span<const std::byte> bytes) {
  auto copy = std::make_shared<Copy>(bytes.size());
  if (!bytes.empty()) std::memcpy(copy->data(), bytes.data(), bytes.size());
  return copy;
}

}  // namespace tcim_lite::hmm
