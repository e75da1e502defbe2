#include <ostream>
#include <string>
#include <utility>

#include "base/error.h"
#include "facade/access.h"
#include "facade/report.h"
#include "runtime/yuv.h"

namespace tcim {

using namespace internal;

namespace {

using tcim_lite::DType;
using tcim_lite::ErrorCode;
using tcim_lite::fail;
using tcim_lite::Format;

constexpr std::pair<DataType, DType> kDataTypes[] = {
    {INT8, DType::Int8},   {UINT8, DType::UInt8},   {INT16, DType::Int16},     {UINT16, DType::UInt16},
    {INT32, DType::Int32}, {UINT32, DType::UInt32}, {FLOAT16, DType::Float16}, {FLOAT32, DType::Float32}};
constexpr const char* kDataTypeNames[] = {"INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "FLOAT16", "FLOAT32"};

constexpr std::pair<DataFmt, Format> kFormats[] = {
    {ND, Format::ND}, {YUV420SP, Format::YUV420SP}, {YUV422SP, Format::YUV422SP}, {YUV444SP, Format::YUV444SP}};

}  // namespace

DType internal::to_core(DataType dtype) {
  for (const auto& [ours, core] : kDataTypes) {
    if (ours == dtype) return core;
  }
  fail(ErrorCode::Argument, "DataType ", int(dtype), " does not exist; expected INT8 (0) to FLOAT32 (7)");
}

Format internal::to_core(DataFmt format) {
  for (const auto& [ours, core] : kFormats) {
    if (ours == format) return core;
  }
  fail(ErrorCode::Argument, "DataFmt ", int(format), " does not exist; expected ND (0) to YUV444SP (3)");
}

TensorInfo internal::Access::info(tcim_lite::TensorInfo core) {
  TensorInfo info;
  info.impl_ = std::make_shared<TensorInfoState>(TensorInfoState{std::move(core)});
  return info;
}

const tcim_lite::TensorInfo& internal::Access::core(const TensorInfo& info) {
  if (info.impl_ == nullptr) {
    fail(ErrorCode::State, "Status.UNINITIALIZED: the TensorInfo describes nothing");
  }
  return info.impl_->core;
}

TensorInfo TensorInfo::CreateNDInfo(std::vector<int64_t> shape, tcim::DataType dtype) {
  return guarded_or("TensorInfo::CreateNDInfo", TensorInfo(),
                    [&] { return Access::info(tcim_lite::TensorInfo::dense(to_core(dtype), std::move(shape))); });
}

TensorInfo TensorInfo::CreateYUVInfo(int width, int height, tcim::DataFmt format) {
  return CreateYUVInfo(1, width, height, format);
}

TensorInfo TensorInfo::CreateYUVInfo(int batch, int width, int height, tcim::DataFmt format) {
  return guarded_or("TensorInfo::CreateYUVInfo", TensorInfo(),
                    [&] { return Access::info(tcim_lite::yuv_info(batch, width, height, to_core(format))); });
}

const std::vector<int64_t>& TensorInfo::Shape() const {
  static const auto* const nothing = new std::vector<int64_t>;
  return impl_ == nullptr ? *nothing : impl_->core.api_shape();
}

tcim::DataType TensorInfo::DataType() const {
  for (const auto& [ours, core] : kDataTypes) {
    if (impl_ != nullptr && core == impl_->core.dtype) return ours;
  }
  return INT8;
}

tcim::DataFmt TensorInfo::Format() const {
  for (const auto& [ours, core] : kFormats) {
    if (impl_ != nullptr && core == impl_->core.format) return ours;
  }
  return ND;
}

tcim::Device TensorInfo::Device() const {
  return impl_ == nullptr || impl_->core.device_id == tcim_lite::kHost ? CPU : HDPL;
}

size_t TensorInfo::MemSize() const { return impl_ == nullptr ? 0 : size_t(impl_->core.bytes()); }

size_t TensorInfo::DataTypeSize() const { return impl_ == nullptr ? 0 : tcim_lite::size_of(impl_->core.dtype); }

TensorInfo TensorInfo::AsContiguous() const {
  return guarded_or("TensorInfo::AsContiguous", TensorInfo(),
                    [&] { return Access::info(Access::core(*this).ascontiguous()); });
}

TensorInfo TensorInfo::AsType(tcim::DataType dtype) const {
  return guarded_or("TensorInfo::AsType", TensorInfo(),
                    [&] { return Access::info(Access::core(*this).astype(to_core(dtype))); });
}

std::ostream& operator<<(std::ostream& out, const TensorInfo& info) {
  std::string shape;
  for (const int64_t extent : info.Shape()) shape += (shape.empty() ? "" : ",") + std::to_string(extent);
  const std::string bytes = std::to_string(info.MemSize());
  // One string, so that a width set on the stream pads the line and not its first word.
  return out << std::string("TensorInfo: shape: [") + shape + "], dtype: " + kDataTypeNames[info.DataType()] +
                    ", format: " + std::string(name_of(to_core(info.Format()))) + ", size: " + bytes +
                    ", memsize: " + bytes;
}

}  // namespace tcim
