// A mapped file that becomes shorter ends the process with SIGBUS where it is read next. That signal cannot be avoided,
// but it can say which file it was.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/no_copy.h"

namespace tcim_lite::hmm {

// While this lives, a SIGBUS in `bytes` writes a line that names the file to standard error, before the handler that
// was there (or the default action) has its turn. No locks: a fork may happen at any time.
class NamedMapping : public NoCopy {
 public:
  NamedMapping(std::string path, std::span<const std::byte> bytes);
  ~NamedMapping();

  const std::string& path() const noexcept { return path_; }
  bool holds(const void* address) const noexcept;

 private:
  const std::string path_;
  const std::span<const std::byte> bytes_;
  size_t slot_;
};

}  // namespace tcim_lite::hmm
