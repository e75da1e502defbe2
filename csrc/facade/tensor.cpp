#include <utility>

#include "base/error.h"
#include "facade/access.h"
#include "facade/report.h"
#include "runtime/yuv.h"

namespace tcim {

using namespace internal;

namespace {

using tcim_lite::ErrorCode;
using tcim_lite::fail;

// What `make`, which returns a core tensor, gives; or a tensor that only carries a status.
template <typename Make>
Tensor core_tensor(const char* what, const Make& make) {
  return make_tensor(what, [&] { return Access::tensor(make()); });
}

void require_bytes(const tcim_lite::TensorInfo& info, uint64_t bytes) {
  if (bytes < info.span_bytes()) {
    fail(ErrorCode::Argument, "a tensor of ", to_string(info), " needs ", info.span_bytes(), " bytes, got ", bytes);
  }
}

tcim_lite::Tensor wrap_host(const TensorInfo& info, void* data, size_t bytes) {
  const tcim_lite::TensorInfo host = Access::core(info).on_host();
  if (data == nullptr) fail(ErrorCode::Argument, "the tensor's memory is a null pointer");
  require_bytes(host, bytes);
  return tcim_lite::Tensor(host, tcim_lite::Buffer::wrap(data, bytes));
}

}  // namespace

Tensor internal::Access::tensor(tcim_lite::Tensor core, TensorInfo info) {
  Tensor tensor;
  // Only an unbound dummy has no memory and yet an info.
  const Status status = core.has_storage() ? OK : UNINITIALIZED;
  tensor.impl_ = std::make_shared<TensorState>(TensorState{status, std::move(core), std::move(info)});
  return tensor;
}

Tensor internal::Access::tensor(tcim_lite::Tensor core) {
  TensorInfo info = Access::info(core.info());
  return tensor(std::move(core), std::move(info));
}

Tensor internal::Access::failed_tensor(Status status) {
  Tensor tensor;
  tensor.impl_ = std::make_shared<TensorState>(TensorState{status, {}, {}});
  return tensor;
}

const tcim_lite::Tensor& internal::Access::core(const Tensor& tensor, const char* vendors) {
  if (tensor.impl_ == nullptr || Access::impl(tensor.impl_->info) == nullptr) {
    fail(ErrorCode::State, vendors, "Status.UNINITIALIZED: the tensor has no memory, it was never made");
  }
  return tensor.impl_->core;
}

Tensor::Tensor(const TensorInfo& info, const tcim::Buffer& buffer) {
  *this = core_tensor("Tensor", [&] {
    const BufferState& memory = Access::core(buffer);
    tcim_lite::TensorInfo placed = Access::core(info);
    placed.device_id = memory.memory->device_id();
    if (memory.memory->layout().device_ids.size() < 2) placed.placement = nullptr;
    require_bytes(placed, memory.bytes);
    return tcim_lite::Tensor(placed, memory.memory, memory.offset);
  });
}

Tensor::Tensor(const TensorInfo& info, void* ptr, size_t size) {
  *this = core_tensor("Tensor", [&] { return wrap_host(info, ptr, size); });
}

Tensor Tensor::CreateHostTensor(const TensorInfo& info, size_t mem_size, void* ptr) {
  return core_tensor("Tensor::CreateHostTensor", [&] {
    const tcim_lite::TensorInfo host = Access::core(info).on_host();
    const size_t bytes = mem_size == 0 ? host.span_bytes() : mem_size;
    if (ptr != nullptr) return wrap_host(info, ptr, bytes);
    require_bytes(host, bytes);
    return tcim_lite::Tensor(host, tcim_lite::Buffer::on_host(bytes));
  });
}

Tensor Tensor::CreateDeviceTensor(const TensorInfo& info, size_t mem_size, int device_id, const std::string& backend) {
  return core_tensor("Tensor::CreateDeviceTensor", [&] {
    tcim_lite::TensorInfo placed = Access::core(info);
    tcim_lite::resolve_backend(backend);
    // What a model for several devices describes stays on those devices, so that it can be bound.
    if (placed.placement != nullptr && placed.placement->device_ids.front() == device_id) {
      require_bytes(placed, mem_size == 0 ? placed.bytes() : mem_size);
      return tcim_lite::Tensor::allocate(placed);
    }
    placed.placement = nullptr;
    placed.device_id = device_id;
    const size_t bytes = mem_size == 0 ? placed.span_bytes() : mem_size;
    require_bytes(placed, bytes);
    return tcim_lite::Tensor(placed, tcim_lite::Buffer::on_device(device_id, bytes));
  });
}

void* Tensor::Data() const {
  if (impl_ == nullptr || impl_->core.buffer() == nullptr) return nullptr;
  return guarded_or("Tensor::Data", static_cast<void*>(nullptr), [&] { return impl_->core.wait_for_data(); });
}

const TensorInfo& Tensor::Info() const {
  static const auto* const nothing = new TensorInfo;
  return impl_ == nullptr ? *nothing : impl_->info;
}

size_t Tensor::MemSize() const { return Info().MemSize(); }

tcim::Buffer Tensor::Buffer() const {
  if (impl_ == nullptr || impl_->core.buffer() == nullptr) return tcim::Buffer();
  return Access::buffer(impl_->core.buffer(), impl_->core.offset(), impl_->core.info().span_bytes());
}

tcim::Device Tensor::Device() const { return Info().Device(); }

tcim::Status Tensor::GetInitStatus() const { return impl_ == nullptr ? UNINITIALIZED : impl_->status; }

tcim::Status Tensor::CopyTo(const Tensor& dst) const {
  return guarded("Tensor::CopyTo", [&] { Access::core(*this).copy_to(Access::core(dst)); });
}

tcim::Status Tensor::CastTo(const Tensor& dst) const {
  return guarded("Tensor::CastTo", [&] { Access::core(*this).cast_to(Access::core(dst)); });
}

Tensor Tensor::AsType(tcim::DataType dtype) const {
  return core_tensor("Tensor::AsType", [&] { return Access::core(*this).astype(to_core(dtype)); });
}

Tensor Tensor::AsType(tcim::DataType dtype, bool) const { return AsType(dtype); }

Tensor Tensor::ToHost(bool to_contiguous) const {
  return core_tensor("Tensor::ToHost", [&] { return Access::core(*this).to_host(to_contiguous); });
}

Tensor Tensor::Clone(bool auto_copy) const {
  return core_tensor("Tensor::Clone", [&] { return Access::core(*this).clone(auto_copy); });
}

tcim::Status Tensor::SplitYUV(Tensor& y, Tensor& uv) const {
  return guarded("Tensor::SplitYUV", [&] {
    tcim_lite::YuvPlanes planes = tcim_lite::split_yuv(Access::core(*this));
    Tensor luma = Access::tensor(std::move(planes.y)), chroma = Access::tensor(std::move(planes.uv));
    y.Tensor::operator=(std::move(luma));
    uv.Tensor::operator=(std::move(chroma));
  });
}

Tensor Tensor::SelectROI(const std::vector<int64_t>& start, const std::vector<int64_t>& shape) const {
  return core_tensor("Tensor::SelectROI", [&] { return Access::core(*this).select_roi(start, shape); });
}

}  // namespace tcim
