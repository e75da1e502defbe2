// Files that a person names in an environment variable: they may be anything, a device or a FIFO too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace tcim_lite {

// The bytes of a regular file. Never waits, and reads no more than `most_bytes`. What cannot be read, is no regular
// file or is larger is an Error that begins with `what`, such as "VARIABLE='path'".
std::string read_named_file(const std::string& path, uint64_t most_bytes, ErrorCode code, const std::string& what);

// The start of a line of such a file, or of a name, for a message: without control characters.
std::string printable_start(std::string_view line);

// The same checks without reading.
void check_named_file(const std::string& path, ErrorCode code, const std::string& what);

}  // namespace tcim_lite
