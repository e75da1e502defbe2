#include "runtime/tensor.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.h"
#include "runtime/api_call.h"
#include "runtime/host_bytes.h"
#include "runtime/yuv.h"

namespace tcim_lite {

Shape byte_strides(const TensorInfo& info) {
  Shape strides = info.strides;
  for (int64_t& stride : strides) stride *= size_of(info.dtype);
  return strides;
}

Tensor::Tensor(TensorInfo info, std::shared_ptr<Buffer> buffer, uint64_t offset)
    : info_(std::move(info)), buffer_(std::move(buffer)), offset_(offset) {}

Tensor Tensor::allocate(const TensorInfo& info, std::string_view holder, Content content) {
  const auto describe = [&](CallEvent& event) {
    event.info = TensorFacts(info, nullptr, 0);
    if (info.device_id != kHost) event.device_id = info.device_id;
  };
  return api_call(device_call<"Tensor.allocate">, describe, [&]() -> Tensor {
    const uint64_t bytes = info.span_bytes();
    if (info.placement != nullptr) {
      // Slabs are cut from dense tensors.
      const TensorInfo dense = info.ascontiguous();
      return Tensor(dense, Buffer::on_devices(SlabLayout::of(*info.placement, info.shape, info.dtype), dense.bytes(),
                                              holder, content));
    }
    if (info.device_id == kHost) return Tensor(info, Buffer::on_host(bytes));
    return Tensor(info, Buffer::on_device(info.device_id, bytes, holder, content));
  });
}

Tensor Tensor::from_array(const TensorInfo& info, const ArrayView& array) {
  return api_call(
      host_call<"Tensor.from_array">,
      [&](CallEvent& event) {
        event.array = event.values = &array;
        event.info = TensorFacts(info, nullptr, 0);
        event.dtype = info.dtype;
      },
      [&] {
        const auto images = images_without_padding(info, array, "Tensor");
        if (!images && array.elements() != info.elements()) {
          fail(ErrorCode::Shape, "Tensor: the array has ", array.elements(), " elements, the info ", to_string(info),
               " needs ", info.elements(), image_note(info));
        }
        Tensor tensor = allocate(info.on_host());
        const Shape strides = byte_strides(info);
        const ArrayView values = images ? ArrayView{images->data(), DType::UInt8, info.shape, info.strides} : array;
        copy_array(values, {tensor.data(), info.dtype, info.shape, strides}, "Tensor");
        return tensor;
      });
}

void Tensor::describe_read(CallEvent& event) const {
  event.self = TensorFacts(*this);
  event.reads = Memory::Self;
  if (handed_out()) event.handed_out = host_array(*this);
}

void Tensor::describe_copy(CallEvent& event, const Tensor& target) const {
  describe_read(event);
  event.tensor = TensorFacts(target);
  event.made = host_array(target);
  event.writes = Memory::Tensor;
}

void Tensor::describe_handing_out(CallEvent& event, bool before) const {
  describe_read(event);
  if (!before) event.handed_out.reset();
}

bool Tensor::handed_out() const noexcept { return has_storage() && !on_device() && buffer_->handed_out(); }

void Tensor::require_storage(const char* what) const {
  if (has_storage()) return;
  fail(ErrorCode::State, what, ": Status.UNINITIALIZED: tensor '", info_.name,
       "' has no memory (an unbound dummy input); bind or set the input first");
}

void Tensor::wait_idle() const {
  if (!ApiCall::nested()) buffer_->wait_for_runs();
  buffer_->wait_idle();
}

Tensor Tensor::select_roi(const Shape& start, const Shape& extents) const {
  return api_call(
      host_call<"Tensor.select_roi">,
      [&](CallEvent& event) {
        event.self = TensorFacts(*this);
        // Recorded as of an array [batch, bytes], which a replay has where no model has such an image.
        const size_t axes = info_.image.size();
        const bool images = axes > 0 && start.size() == axes && extents.size() == axes;
        event.start = images ? Shape{start[0], 0} : start;
        event.extents = images ? Shape{extents[0], info_.shape[1]} : extents;
      },
      [&] {
        require_storage("select_roi");
        if (!info_.image.empty()) return select_images(start, extents);
        const auto refuse = [&] {
          fail(ErrorCode::Shape, "select_roi: start ", to_string(start), " and shape ", to_string(extents),
               " do not lie inside a tensor of shape ", to_string(info_.shape));
        };
        if (start.size() != info_.shape.size() || extents.size() != info_.shape.size()) refuse();
        Tensor view = *this;
        for (size_t axis = 0; axis < start.size(); ++axis) {
          if (start[axis] < 0 || extents[axis] < 1 || extents[axis] > info_.shape[axis] - start[axis]) refuse();
          view.offset_ += uint64_t(start[axis] * info_.strides[axis] * size_of(info_.dtype));
        }
        view.info_ = info_.part(extents);
        return view;
      });
}

Tensor Tensor::select_images(const Shape& start, const Shape& extents) const {
  const auto fits = [&](const Shape& whole) {
    if (start.size() != whole.size() || extents.size() != whole.size()) return false;
    const auto rest = [](const Shape& shape) { return std::span(shape).subspan(1); };
    return std::ranges::equal(rest(extents), rest(whole)) &&
           std::ranges::all_of(rest(start), [](int64_t at) { return at == 0; });
  };
  if (!fits(info_.image) && !fits(info_.shape)) {
    fail(ErrorCode::Argument, "select_roi: start ", to_string(start), " and shape ", to_string(extents),
         " are no whole images of ", to_string(info_), "; split it into planes first");
  }
  if (start[0] < 0 || extents[0] < 1 || extents[0] > info_.shape[0] - start[0]) {
    fail(ErrorCode::Shape, "select_roi: ", extents[0], " image(s) from ", start[0], " on do not lie inside ",
         to_string(info_));
  }
  Tensor view = *this;
  view.offset_ += uint64_t(start[0] * info_.strides[0] * size_of(info_.dtype));
  view.info_ = info_.part({extents[0], info_.shape[1]});
  return view;
}

void Tensor::copy_values(const Tensor& target, const char* what) const {
  require_storage(what);
  target.require_storage(what);
  if (info_.elements() != target.info_.elements()) {
    fail(ErrorCode::Shape, what, ": the source is ", to_string(info_), ", the target ", to_string(target.info_),
         "; element counts must be equal");
  }
  wait_idle();
  target.wait_idle();
  const bool same_bytes = info_.dtype == target.info_.dtype && info_.is_dense() && target.info_.is_dense();
  if (same_bytes && buffer_->host_data() == nullptr && target.buffer_->host_data() != nullptr) {
    return buffer_->read(offset_, info_.bytes(), target.buffer_->host_data() + target.offset_);
  }
  const Shape from = byte_strides(info_), to = byte_strides(target.info_);
  const HostBytes source(*this, HostAccess::Read);
  HostBytes copy(target, target.info_.is_dense() ? HostAccess::Write : HostAccess::Update);
  copy_array({source.data(), info_.dtype, info_.shape, from}, {copy.data(), target.info_.dtype, target.info_.shape, to},
             what);
  copy.store();
}

Tensor Tensor::to_host(bool to_contiguous) const {
  return api_call(
      device_call<"Tensor.to_host">, [&](CallEvent& event) { describe_read(event); },
      [&]() -> Tensor {
        require_storage("to_host");
        const bool dense = info_.is_dense();
        if (!on_device() && (dense || !to_contiguous)) return *this;
        const TensorInfo wanted = dense || to_contiguous ? info_.ascontiguous().on_host() : info_.on_host();
        const Tensor host(wanted, wanted.is_dense() ? Buffer::unfilled_on_host(wanted.bytes())
                                                    : Buffer::on_host(wanted.span_bytes()));
        copy_values(host, "to_host");
        return host;
      });
}

ArrayMemory Tensor::to_array() const {
  const bool before = handed_out();
  return api_call(
      device_call<"Tensor.numpy">, [&](CallEvent& event) { describe_handing_out(event, before); },
      [&] {
        require_storage("numpy");
        wait_idle();
        Tensor host = to_host(on_device());
        std::byte* memory = host.buffer()->lend_to_array();
        if (memory == nullptr) {
          host = host.clone(true);
          memory = host.buffer()->lend_to_array();
        }
        return ArrayMemory{host, memory + host.offset()};
      });
}

std::byte* Tensor::wait_for_data() const {
  const bool before = handed_out();
  return api_call(
      device_call<"Tensor.data">,
      [&](CallEvent& event) {
        describe_handing_out(event, before);
        event.made = host_array(*this);
      },
      [&] {
        require_storage("Data");
        wait_idle();
        if (!on_device()) buffer_->hand_out();
        return data();
      });
}

Tensor Tensor::clone(bool copy) const {
  return api_call(
      device_call<"Tensor.clone">,
      [&](CallEvent& event) {
        event.self = TensorFacts(*this);
        if (copy) describe_read(event);
        event.copies = copy;
        if (copy) event.writes = Memory::Result;
      },
      [&] {
        require_storage("clone");
        Tensor twin = allocate(info_);
        if (copy) copy_values(twin, "clone");
        return twin;
      });
}

Tensor Tensor::astype(DType dtype) const {
  HostValues values;
  return api_call(
      device_call<"Tensor.astype">,
      [&](CallEvent& event) {
        describe_read(event);
        values.describe(event, *this);
        event.dtype = dtype;
        event.writes = Memory::Result;
      },
      [&] {
        require_storage("astype");
        Tensor converted = allocate(info_.astype(dtype).ascontiguous());
        copy_values(converted, "astype");
        return converted;
      });
}

void Tensor::copy_to(const Tensor& target) const {
  return api_call(
      device_call<"Tensor.copy_to">, [&](CallEvent& event) { describe_copy(event, target); },
      [&] {
        if (info_.dtype != target.info_.dtype) {
          fail(ErrorCode::Shape, "copy_to: the source is ", name_of(info_.dtype), ", the target ",
               name_of(target.info_.dtype), "; use cast_to to convert");
        }
        copy_values(target, "copy_to");
      });
}

void Tensor::cast_to(const Tensor& target) const {
  HostValues values;
  return api_call(
      device_call<"Tensor.cast_to">,
      [&](CallEvent& event) {
        describe_copy(event, target);
        values.describe(event, *this);
      },
      [&] { copy_values(target, "cast_to"); });
}

void Tensor::set_zero() const {
  return api_call(
      device_call<"Tensor.set_zero">,
      [&](CallEvent& event) {
        event.self = TensorFacts(*this);
        event.writes = Memory::Self;
      },
      [&] {
        require_storage("set_zero");
        wait_idle();
        HostBytes bytes(*this, info_.is_dense() ? HostAccess::Write : HostAccess::Update);
        if (info_.is_dense()) {
          std::memset(bytes.data(), 0, info_.bytes());
        } else {
          static constexpr std::byte kZero[8] = {};
          const Shape still(info_.shape.size(), 0), strides = byte_strides(info_);
          copy_array({kZero, info_.dtype, info_.shape, still}, {bytes.data(), info_.dtype, info_.shape, strides},
                     "set_zero");
        }
        bytes.store();
      });
}

}  // namespace tcim_lite
