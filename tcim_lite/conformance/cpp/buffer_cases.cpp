#include <cstring>

#include "check.h"

using tcim::Buffer;

CASE(buffers_hold_memory_on_host_and_device) {
  CHECK_EQ(Buffer().Size(), 0u);
  CHECK(Buffer().Data() == nullptr);
  CHECK_EQ(Buffer().GetInitStatus(), tcim::UNINITIALIZED);
  CHECK_EQ(Buffer::CreateHostBuffer(0).GetInitStatus(), tcim::INVALID_ARGUMENT);
  CHECK_EQ(Buffer::CreateDeviceBuffer(16, 9).GetInitStatus(), tcim::ERR_UNDEFINED);
  CHECK_EQ(Buffer::CreateDeviceBuffer(16, 0, "", "unheard of").GetInitStatus(), tcim::INVALID_ARGUMENT);
  CHECK_EQ(Buffer::CreateDeviceBuffer(16, 0, "Xh1HdiBackend").GetInitStatus(), tcim::UNSUPPORTED);
  char mine[64] = "mine";
  Buffer host = Buffer::CreateHostBuffer(64), wrapped = Buffer::CreateHostBuffer(sizeof(mine), mine);
  Buffer device = Buffer::CreateDeviceBuffer(64, 0), reserved = Buffer::CreateDeviceBuffer(64, 0, "", "reserved");
  CHECK(wrapped.Data() == mine);
  for (Buffer* buffer : {&host, &wrapped, &device, &reserved}) {
    CHECK_EQ(buffer->GetInitStatus(), tcim::OK);
    CHECK_EQ(buffer->Size(), 64u);
    CHECK_EQ(buffer->Device(), buffer == &device || buffer == &reserved ? tcim::HDPL : tcim::CPU);
    CHECK_EQ(buffer->CopyFromHost("hello", 6), tcim::OK);
    CHECK_EQ(buffer->CopyFromHost("world", 6, 58), tcim::OK);
    char text[6];
    CHECK_EQ(buffer->CopyToHost(text, 6), tcim::OK);
    CHECK_EQ(std::string(text), "hello");
    CHECK_EQ(buffer->CopyToHost(text, 6, 58), tcim::OK);
    CHECK_EQ(std::string(text), "world");
    CHECK_EQ(buffer->CopyFromHost("beyond", 7, 58), tcim::INVALID_ARGUMENT);
    CHECK_EQ(buffer->CopyToHost(text, 1, 64), tcim::INVALID_ARGUMENT);
    CHECK_EQ(buffer->CopyToHost(text, 2, SIZE_MAX), tcim::INVALID_ARGUMENT);
    CHECK_EQ(buffer->CopyFromHost(nullptr, 2), tcim::INVALID_ARGUMENT);
    CHECK_EQ(buffer->CopyFromHost(nullptr, 0), tcim::OK);
    CHECK_EQ(buffer->MemSet(0x5a, 3, 1), tcim::OK);
    CHECK_EQ(buffer->MemSet(0, 1, 2), tcim::OK);
    CHECK_EQ(buffer->MemSet(0, 65, 0), tcim::INVALID_ARGUMENT);
    CHECK_EQ(buffer->CopyToHost(text, 6), tcim::OK);
    CHECK(std::memcmp(text, "h\x5a\0\x5ao", 6) == 0);
  }
  CHECK(std::strcmp(mine, "h\x5a") == 0);
  CHECK_EQ(Buffer().MemSet(0, 1, 0), tcim::UNINITIALIZED);
  // Foreign device memory.
  Buffer foreign = Buffer::CreateDeviceBuffer(mine, sizeof(mine), 0, "");
  CHECK_EQ(foreign.Device(), tcim::HDPL);
  CHECK(foreign.Data() == mine);
  CHECK_EQ(device.CopyTo(foreign), tcim::OK);
  CHECK_EQ(host.CopyFromHost("other", 6), tcim::OK);
  CHECK_EQ(host.CopyTo(foreign, 2), tcim::OK);
  CHECK(std::memcmp(mine, "ot\0\x5ao", 6) == 0);
  CHECK_EQ(host.CopyTo(foreign, 65), tcim::INVALID_ARGUMENT);
  CHECK_EQ(host.CopyTo(device.GetSubBuffer(8, 0), 9), tcim::INVALID_ARGUMENT);
  CHECK_EQ(host.CopyTo(foreign, 0), tcim::OK);
  CHECK_EQ(Buffer::CreateDeviceBuffer(nullptr, 64, 0, "").GetInitStatus(), tcim::INVALID_ARGUMENT);
}

CASE(sub_buffers_are_views_that_keep_their_parent) {
  Buffer part, same;
  {
    Buffer whole = Buffer::CreateDeviceBuffer(64, 0);
    part = whole.GetSubBuffer(16, 32).GetSubBuffer(8, 4);
    same = whole;
    CHECK(part.Data() == static_cast<char*>(whole.Data()) + 36);
    CHECK_EQ(whole.GetSubBuffer(33, 32).GetInitStatus(), tcim::INVALID_ARGUMENT);
    CHECK_EQ(whole.GetSubBuffer(0, 0).GetInitStatus(), tcim::INVALID_ARGUMENT);
    CHECK_EQ(whole.GetSubBuffer(1, SIZE_MAX).Size(), 0u);
  }
  CHECK_EQ(part.Size(), 8u);
  CHECK_EQ(part.CopyFromHost("12345678", 8), tcim::OK);
  char text[8];
  CHECK_EQ(same.CopyToHost(text, 8, 36), tcim::OK);
  CHECK(std::memcmp(text, "12345678", 8) == 0);
  // A tensor on a part, and what does not fit it.
  const auto info = tcim::TensorInfo::CreateNDInfo({2}, tcim::INT32);
  const tcim::Tensor tensor(info, part);
  CHECK(tensor.Data() == part.Data());
  CHECK_EQ(tensor.Device(), tcim::HDPL);
  CHECK_EQ(tcim::Tensor(tcim::TensorInfo::CreateNDInfo({3}, tcim::INT32), part).GetInitStatus(),
           tcim::INVALID_ARGUMENT);
  CHECK_EQ(tcim::Tensor(info, Buffer()).GetInitStatus(), tcim::UNINITIALIZED);
}

CASE(buffers_copy_and_clone_even_when_they_overlap) {
  Buffer buffer = Buffer::CreateHostBuffer(10);
  CHECK_EQ(buffer.CopyFromHost("0123456789", 10), tcim::OK);
  Buffer clone = buffer.Clone(), blank = buffer.Clone(false);
  CHECK(clone.Data() != buffer.Data());
  CHECK_EQ(blank.Size(), 10u);
  CHECK_EQ(buffer.GetSubBuffer(8, 0).CopyTo(buffer.GetSubBuffer(8, 2)), tcim::OK);
  CHECK(std::memcmp(buffer.Data(), "0101234567", 10) == 0);
  CHECK_EQ(buffer.GetSubBuffer(8, 2).CopyTo(buffer.GetSubBuffer(8, 0)), tcim::OK);
  CHECK(std::memcmp(buffer.Data(), "0123456767", 10) == 0);
  CHECK(std::memcmp(clone.Data(), "0123456789", 10) == 0);
  CHECK_EQ(clone.CopyTo(clone), tcim::OK);
  CHECK_EQ(buffer.CopyTo(buffer.GetSubBuffer(9, 1)), tcim::INVALID_ARGUMENT);
  CHECK_EQ(clone.CopyTo(Buffer()), tcim::UNINITIALIZED);
  CHECK_EQ(Buffer().Clone().GetInitStatus(), tcim::UNINITIALIZED);
}
