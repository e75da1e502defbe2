// A file of trace events: a JSON array that is whole after every append, so a process may end in any way and several
// may append to one file.
#pragma once

#include <string>
#include <string_view>

#include "base/no_copy.h"

namespace tcim_lite::layers {

// Thread-safe.
class TraceFile : public NoCopy {
 public:
  // Begins the file if there is none. Throws Error(Argument) for one that cannot be written, is no regular file, or
  // holds something else.
  explicit TraceFile(std::string path);
  ~TraceFile();

  // Events, separated by ",\n". One that cannot be written is lost, which the log says once.
  void append(std::string_view events) noexcept;

 private:
  const char* try_append(std::string_view events) noexcept;

  const std::string path_;
  int file_ = -1;
  bool lost_ = false;
};

}  // namespace tcim_lite::layers
