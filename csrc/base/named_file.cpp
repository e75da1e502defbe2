#include "base/named_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/no_copy.h"

namespace tcim_lite {
namespace {

class NamedFile : public NoCopy {
 public:
  NamedFile(const std::string& path, ErrorCode code, const std::string& what)
      // Not blocking: opening a FIFO nobody writes would hang.
      : code_(code), what_(what), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
    struct stat status = {};
    if (fd_ < 0) fail_with_errno();
    if (fstat(fd_, &status) == 0 && S_ISREG(status.st_mode)) return;
    close(fd_);
    fail(code, what, S_ISDIR(status.st_mode) ? " is a folder" : " is not a regular file", "; give the path of a file");
  }
  ~NamedFile() { close(fd_); }

  std::string read_at_most(uint64_t most_bytes) const {
    std::string text;
    char chunk[16384];  // the size is not asked: files of /proc do not know theirs
    while (text.size() <= most_bytes) {
      const ssize_t count = read(fd_, chunk, sizeof chunk);
      if (count == 0) return text;
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail_with_errno();
      text.append(chunk, size_t(count));
    }
    fail(code_, what_, " has more than ", most_bytes, " bytes; give the path of a smaller file");
  }

 private:
  [[noreturn]] void fail_with_errno() const {
    const std::string reason = std::generic_category().message(errno);
    fail(code_, what_, " cannot be read (", reason, "); check the path");
  }

  ErrorCode code_;
  const std::string& what_;
  int fd_;
};

}  // namespace

std::string read_named_file(const std::string& path, uint64_t most_bytes, ErrorCode code, const std::string& what) {
  return NamedFile(path, code, what).read_at_most(most_bytes);
}

std::string printable_start(std::string_view line) {
  constexpr size_t kMost = 80;
  std::string text(line.substr(0, kMost));
  for (char& each : text) {
    if (static_cast<unsigned char>(each) < ' ' || each == '\x7f') each = '?';
  }
  return line.size() > kMost ? text + "..." : text;
}

void check_named_file(const std::string& path, ErrorCode code, const std::string& what) {
  const NamedFile opened(path, code, what);
}

}  // namespace tcim_lite
