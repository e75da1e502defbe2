#include "runtime/device_usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/no_copy.h"

namespace tcim_lite {
namespace {

constexpr const char* kMemfdName = "tcim_lite.usage.2";
constexpr const char* kLinkText = "/memfd:tcim_lite.usage.2 (deleted)";

struct Table {
  std::atomic<int32_t> pid;
  std::atomic<int32_t> count;
  alignas(DeviceUsage) std::byte records[kMaxDevices][sizeof(DeviceUsage)];

  const DeviceUsage& operator[](size_t index) const { return *reinterpret_cast<const DeviceUsage*>(records[index]); }
};
static_assert(std::atomic<int32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

// Of this process.
struct Shared {
  int fd = -1;
  struct stat identity;
  Table* table = nullptr;
};

Shared& shared() {
  static auto* const instance = new Shared;
  return *instance;
}

// The table is sparse: only pages in use take memory.
Table* map_table(Shared& own) {
  own.fd = memfd_create(kMemfdName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (own.fd < 0 || fstat(own.fd, &own.identity) != 0 || ftruncate(own.fd, sizeof(Table)) != 0 ||
      fcntl(own.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return nullptr;
  }
  void* memory = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, own.fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, sizeof(Table), MADV_DONTFORK);
#ifdef F_SEAL_FUTURE_WRITE
  fcntl(own.fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);  // from Linux 5.1
#endif
  auto* table = static_cast<Table*>(memory);
  table->pid.store(getpid(), std::memory_order_release);
  return table;
}

// The program may have closed the descriptor and got another of this number.
void close_own(Shared& own) {
  struct stat now;
  if (own.fd >= 0 && fstat(own.fd, &now) == 0 && now.st_ino == own.identity.st_ino &&
      now.st_dev == own.identity.st_dev) {
    close(own.fd);
  }
  own.fd = -1;
}

struct Directory : NoCopy {
  explicit Directory(const std::string& path) : stream(opendir(path.c_str())) {}
  ~Directory() {
    if (stream != nullptr) closedir(stream);
  }

  const char* next() {
    const dirent* entry = stream == nullptr ? nullptr : readdir(stream);
    return entry == nullptr ? nullptr : entry->d_name;
  }

  DIR* stream;
};

// The table behind a descriptor of another process, or null if it is none. Only a sealed file is mapped: nobody can
// pull the memory away.
std::shared_ptr<const Table> open_table(const std::string& link, int pid) {
  char text[64];
  const ssize_t length = readlink(link.c_str(), text, sizeof(text));
  if (length < 0 || std::string_view(text, size_t(length)) != kLinkText) return nullptr;
  const int fd = open(link.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return nullptr;
  struct stat status;
  const int seals = fcntl(fd, F_GET_SEALS);
  const bool good =
      seals > 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &status) == 0 && status.st_size == off_t(sizeof(Table));
  void* memory = good ? mmap(nullptr, sizeof(Table), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (memory == MAP_FAILED) return nullptr;
  std::shared_ptr<const Table> table(static_cast<const Table*>(memory),
                                     [memory](const Table*) { munmap(memory, sizeof(Table)); });
  return table->pid.load(std::memory_order_acquire) == pid ? table : nullptr;
}

void append_usage(std::vector<ProcessUsage>& found, int pid, const Table& table) {
  const int count = std::clamp(table.count.load(std::memory_order_acquire), 0, kMaxDevices);
  const std::string command = command_of(pid);
  for (size_t i = 0; i < size_t(count); ++i) {
    const DeviceUsage& usage = table[i];
    if (usage.complete.load(std::memory_order_acquire) == 0) continue;
    found.push_back({pid, command, usage.id, std::string(usage.name, strnlen(usage.name, sizeof(usage.name))),
                     usage.mode.load(std::memory_order_relaxed), usage.clock_mhz(),
                     usage.memory_used.load(std::memory_order_relaxed), usage.memory_total, usage.utilization()});
  }
}

}  // namespace

std::string command_of(int pid) {
  std::ifstream file(concat("/proc/", pid, "/cmdline"), std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

DeviceUsage::DeviceUsage(const DeviceProfile& profile)
    : id(profile.id), max_clock_mhz(profile.clock_mhz), memory_total(profile.total_memory()), name{} {
  std::memcpy(name, profile.name.data(), std::min(profile.name.size(), sizeof(name) - 1));
}

int DeviceUsage::clock_mhz() const noexcept {
  const bool slow = mode.load(std::memory_order_relaxed) == DvfsMode::OnDemand && !busy.busy();
  const int32_t clock = slow ? max_clock_mhz / 2 : max_clock_mhz;
  const int32_t limit = clock_limit_mhz.load(std::memory_order_relaxed);
  return limit == 0 ? clock : std::min(clock, limit);
}

DeviceUsage* share_usage(const DeviceProfile& profile) noexcept {
  Shared& own = shared();
  if (own.table == nullptr) own.table = map_table(own);
  if (own.table == nullptr) {
    log(LogLevel::Info, concat("tcim-lite smi will not show this process: no shared memory (", strerror(errno), ")"));
    close_own(own);
    return nullptr;
  }
  const int32_t index = own.table->count.load(std::memory_order_relaxed);
  if (index == kMaxDevices) return nullptr;
  auto* usage = new (own.table->records[index]) DeviceUsage(profile);
  own.table->count.store(index + 1, std::memory_order_release);
  return usage;
}

void abandon_shared_usage() noexcept {
  close_own(shared());
  shared() = Shared();
}

std::vector<ProcessUsage> read_usage() {
  Directory processes("/proc");
  if (processes.stream == nullptr) {
    fail(ErrorCode::Device, "/proc cannot be read (", strerror(errno), "), so which processes there are is unknown");
  }
  std::vector<ProcessUsage> found;
  while (const char* name = processes.next()) {
    int pid = 0;
    if (std::from_chars(name, name + strlen(name), pid).ec != std::errc()) continue;
    const std::string folder = concat("/proc/", pid, "/fd/");
    Directory descriptors(folder);
    while (const char* descriptor = descriptors.next()) {
      const auto table = open_table(folder + descriptor, pid);
      if (table != nullptr) append_usage(found, pid, *table);
    }
  }
  return found;
}

}  // namespace tcim_lite
