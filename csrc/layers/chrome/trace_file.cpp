#include "layers/chrome/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/no_copy.h"

namespace tcim_lite::layers {
namespace {

constexpr std::string_view kBegin = "[\n", kEnd = "\n]\n";

bool write_at(int file, std::string_view text, off_t offset) noexcept {
  while (!text.empty()) {
    const ssize_t count = pwrite(file, text.data(), text.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(size_t(count));
    offset += count;
  }
  return true;
}

// Between processes, a child of a fork and its parent among them: the lock is the process's, not the open file's. So
// the threads of one need another.
class FileLock : public NoCopy {
 public:
  explicit FileLock(int file) noexcept : threads_(of_threads()), file_(file) {
    while (!set(F_WRLCK) && errno == EINTR) {
    }
  }
  ~FileLock() { set(F_UNLCK); }

 private:
  // Of all traces of the process. Held inside of calls and runs only, so a fork finds it free.
  static std::mutex& of_threads() {
    static auto* const mutex = new std::mutex;
    return *mutex;
  }

  bool set(short type) const noexcept {
    struct flock whole = {};
    whole.l_type = type;
    whole.l_whence = SEEK_SET;
    return fcntl(file_, F_SETLKW, &whole) == 0;
  }

  const std::lock_guard<std::mutex> threads_;
  const int file_;
};

}  // namespace

TraceFile::TraceFile(std::string path) : path_(std::move(path)) {
  // Not blocking: opening a FIFO nobody reads would hang.
  file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (file_ < 0) fail(ErrorCode::Argument, "trace: '", path_, "' cannot be opened: ", std::strerror(errno));
  struct stat status;
  const bool regular = fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
  const char* const wrong = regular ? try_append({}) : "it is no regular file, as the format chrome needs";
  if (wrong == nullptr) return;
  close(file_);
  fail(ErrorCode::Argument, "trace: '", path_, "': ", wrong);
}

TraceFile::~TraceFile() { close(file_); }

void TraceFile::append(std::string_view events) noexcept {
  const char* const wrong = try_append(events);
  if (wrong == nullptr || std::exchange(lost_, true)) return;
  log(LogLevel::Error, concat("trace: '", path_, "' cannot be written (", wrong, "); events are lost"));
}

// Null, or what is wrong.
const char* TraceFile::try_append(std::string_view events) noexcept {
  const FileLock lock(file_);
  struct stat status;
  if (fstat(file_, &status) != 0) return std::strerror(errno);
  std::string text;
  off_t offset = status.st_size - off_t(kEnd.size());
  if (status.st_size == 0) {
    text = kBegin;
    offset = 0;
  } else {
    char end[4] = {};
    char begin[2] = {};
    if (offset < off_t(kBegin.size()) - 1 || pread(file_, end, kEnd.size(), offset) != ssize_t(kEnd.size()) ||
        std::string_view(end, kEnd.size()) != kEnd || pread(file_, begin, 2, 0) != 2 || begin[0] != '[') {
      return "it holds something that is no trace; delete it, or name another file";
    }
    // "[\n\n]\n" holds no event yet.
    if (!events.empty() && status.st_size > off_t(kBegin.size() + kEnd.size())) text = ",\n";
  }
  text += events;
  text += kEnd;
  return write_at(file_, text, offset) ? nullptr : std::strerror(errno);
}

}  // namespace tcim_lite::layers
