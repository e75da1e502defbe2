// The file of a recording: chunks, each with a checksum, written at once so that a killed process leaves whole ones
// (docs/recording.md, section 2). Thread-safe. What cannot be written ends the recording; the log says so once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/no_copy.h"

namespace tcim_lite::layers {

class RecordFile : public NoCopy {
 public:
  // Replaces a file of the name; if another recording is written into it, FILE.<pid> is written instead. `meta` is
  // JSON. Throws Error(Argument) if the file cannot be written.
  RecordFile(std::string path, std::string meta);
  ~RecordFile();

  // A JSON object on one line. The child of a fork begins a file of its own, FILE.<pid>.
  void add_record(std::string_view line);
  // The bytes of a tensor; those that are there already are not written again.
  void add_data(std::span<const std::byte> content, uint64_t fingerprint);
  // Whether the path is one of the file that is written.
  bool is_at(const std::string& path) noexcept;
  // Writes the end; later calls do nothing.
  void close() noexcept;

 private:
  enum class Kind : uint32_t { Meta = 1, Calls = 2, Data = 3, End = 4 };

  void open_file(const std::string& path);
  void begin();
  void follow_fork();
  void write_chunk(Kind kind, std::span<const std::byte> first, std::span<const std::byte> rest = {});
  bool write_all(std::span<const std::byte> bytes);

  const std::string asked_;
  const std::string meta_;
  std::mutex mutex_;
  std::string path_;
  int file_ = -1;
  int pid_ = 0;
  uint64_t records_ = 0;
  std::unordered_set<uint64_t> stored_;
};

}  // namespace tcim_lite::layers
