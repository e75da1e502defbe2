// What the reader does with golden and damaged files. Each rule of the format: tests/test_hmm_malformed.py.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>

#include "check.h"
#include "hmm/reader.h"
#include "hmm/sha256.h"
#include "hmm_summary.h"

using namespace tcim_lite;

namespace {

std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::vector<std::byte> noise(size_t count) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = std::byte(random());
  return bytes;
}

TEST(crc32c_known_values) {
  CHECK_EQ(hmm::crc32c(as_bytes("123456789")), 0xe3069283u);
  CHECK_EQ(hmm::crc32c_by_table(as_bytes("123456789")), 0xe3069283u);
  CHECK_EQ(hmm::crc32c({}), 0u);
  CHECK_EQ(hmm::crc32c(as_bytes(std::string(32, '\0'))), 0x8a9136aau);
}

TEST(crc32c_equals_table_at_every_length) {
  const auto bytes = noise(3 * 12288 + 200);
  const std::span<const std::byte> all(bytes);
  for (size_t size : {0, 1, 7, 8, 9, 4095, 12287, 12288, 12289, 24576, 36864, 37000}) {
    for (size_t start : {0, 1, 5}) {
      const auto part = all.subspan(start, size);
      CHECK_EQ(hmm::crc32c(part), hmm::crc32c_by_table(part));
      CHECK_EQ(hmm::crc32c(part.subspan(size / 3), hmm::crc32c(part.first(size / 3))), hmm::crc32c(part));
    }
  }
}

TEST(sha256_known_values) {
  const auto digest = [](const std::string& text, size_t step) {
    hmm::Sha256 sha;
    for (size_t i = 0; i < text.size(); i += step)
      sha.update(as_bytes(text).subspan(i, std::min(step, text.size() - i)));
    return hmm::to_hex(sha.finish());
  };
  CHECK_EQ(digest("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_EQ(digest("abc", 1), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  for (size_t step : {1, 7, 64, 100, 1000})
    CHECK_EQ(digest(std::string(1000, 'a'), step), "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

TEST(golden_files) {
  for (const char* name : {"minimal.hmm", "every_op.hmm", "external.hmm", "shared.hmw", "two_devices.hmms", "ports.hmm",
                           "ports_two_devices.hmms", "mul.hmm", "hidden_exponent.hmm", "moe.hmm", "window.hmm",
                           "softcap.hmm", "state_space.hmm"}) {
    const std::string path = std::string(TCIM_LITE_TEST_DATA "/hmm/") + name;
    std::ostringstream expected;
    expected << std::ifstream(path + ".txt").rdbuf();
    CHECK_EQ(summarize(hmm::map_file(path)->span(), name), expected.str());
  }
}

TEST(map_file) {
  char path[] = "/tmp/tcim_lite_map_XXXXXX";
  const int handle = mkstemp(path);
  const auto bytes = noise(10000);
  CHECK_EQ(write(handle, bytes.data(), bytes.size()), ssize_t(bytes.size()));
  close(handle);
  for (uint64_t offset : {0, 64, 100, 4096, 4160, 8192, 9999, 10000}) {
    for (uint64_t size : {0, 1}) {
      if (offset + size > bytes.size()) continue;
      const auto mapped = hmm::map_file(path, offset, size);
      const auto expected = std::span<const std::byte>(bytes).subspan(offset, size != 0 ? size : bytes.size() - offset);
      CHECK(std::equal(mapped->span().begin(), mapped->span().end(), expected.begin(), expected.end()));
      CHECK_EQ(reinterpret_cast<uintptr_t>(mapped->span().data()) % 64, 0u);
    }
  }
  CHECK_ERROR(hmm::map_file(path, 10001), "outside a file of 10000");
  CHECK_ERROR(hmm::map_file(path, 1, UINT64_MAX), "outside a file of 10000");
  CHECK_ERROR(hmm::map_file("/tmp"), "is a folder");
  CHECK_ERROR(hmm::map_file("/dev/null"), "not a regular file");
  std::remove(path);
  CHECK_ERROR(hmm::map_file(path), "cannot be read");
  CHECK(std::ranges::equal(hmm::copy_bytes(bytes)->span(), bytes));
}

// Any one flipped byte outside the payload is refused, and no cut crashes.
TEST(damage_is_refused) {
  const auto file = hmm::map_file(TCIM_LITE_TEST_DATA "/hmm/minimal.hmm");
  std::vector<std::byte> bytes(file->span().begin(), file->span().end());
  for (size_t size = 0; size < bytes.size(); ++size)
    CHECK_ERROR(hmm::parse(std::span(bytes).first(size), "cut"), "cut: ");
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool gap = (i >= 192 + 124 && i < 320);  // between sections: ignored
    bytes[i] ^= std::byte{0x10};
    if (!gap) CHECK_ERROR(hmm::parse(bytes, "flip"), "flip: ");
    bytes[i] ^= std::byte{0x10};
  }
}

}  // namespace

int main() { return run_tests(); }
