#include <type_traits>

#include "base/error.h"
#include "bindings/bindings.h"

namespace tcim_lite {
namespace {

constexpr DType kDtypes[] = {DType::Int8,    DType::UInt8,   DType::Int16, DType::UInt16, DType::Int32,   DType::UInt32,
                             DType::Float16, DType::Float32, DType::Int64, DType::UInt64, DType::Float64, DType::Bool};

char kind_of(DType dtype) {
  switch (dtype) {
    case DType::Bool:
      return 'b';
    case DType::UInt8:
    case DType::UInt16:
    case DType::UInt32:
    case DType::UInt64:
      return 'u';
    case DType::Float16:
    case DType::Float32:
    case DType::Float64:
      return 'f';
    default:
      return 'i';
  }
}

}  // namespace

ArrayView view_of(const py::array& array, std::string_view what) {
  static_assert(std::is_same_v<py::ssize_t, int64_t>);
  const py::dtype numpy = array.dtype();
  const char kind = numpy.kind(), order = numpy.byteorder();
  for (const DType dtype : kDtypes) {
    if (kind != kind_of(dtype) || numpy.itemsize() != size_of(dtype) || order == '>') continue;
    const auto axes = size_t(array.ndim());
    return {static_cast<const std::byte*>(array.data()), dtype, {array.shape(), axes}, {array.strides(), axes}};
  }
  fail(
      ErrorCode::Argument, what, ": an array of dtype ", py::str(numpy).cast<std::string>(),
      " cannot be converted; expected integers, bool, bfloat16, float16, float32 or float64, so convert it before, for "
      "example with astype(numpy.float32)");
}

py::dtype numpy_dtype(DType dtype) { return py::dtype(std::string(name_of(dtype))); }

DType dtype_from_name(const std::string& name) {
  for (const DType dtype : kDtypes) {
    if (name == name_of(dtype)) return dtype;
  }
  fail(ErrorCode::Argument, "no tensor can be of dtype '", name,
       "'; expected int8, uint8, int16, uint16, int32, uint32, "
       "float16 or float32");
}

}  // namespace tcim_lite
