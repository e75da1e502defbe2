// Memory whose last element lies against an unmapped page, so that a read or write past the end crashes the test
// instead of passing. What lies before is poison: 0xff bytes, a NaN in every float type.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

template <typename T>
class GuardedBuffer {
 public:
  // With an alignment above sizeof(T) up to alignment - 1 poisoned bytes follow the last element.
  explicit GuardedBuffer(int64_t count, size_t alignment = alignof(T)) : count_(count) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    const size_t bytes = (size_t(count) * sizeof(T) + alignment - 1) / alignment * alignment;
    const size_t pages = (bytes + page - 1) / page * page;
    mapped_bytes_ = pages + page;
    void* map = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    map_ = static_cast<std::byte*>(map);
    std::memset(map_, 0xff, pages);
    mprotect(map_ + pages, page, PROT_NONE);
    data_ = reinterpret_cast<T*>(map_ + pages - bytes);
  }
  ~GuardedBuffer() { munmap(map_, mapped_bytes_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  T* data() const { return data_; }
  int64_t size() const { return count_; }
  T& operator[](int64_t i) const { return data_[i]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + count_; }

  // Every byte of the mapping but the guard page, so that writes before the first element count too.
  bool same_bytes(const GuardedBuffer& other) const {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    return mapped_bytes_ == other.mapped_bytes_ && std::memcmp(map_, other.map_, mapped_bytes_ - page) == 0;
  }

 private:
  std::byte* map_;
  T* data_;
  size_t mapped_bytes_;
  int64_t count_;
};
