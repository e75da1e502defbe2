// Takes over what other libraries hand out by DLPack: https://dmlc.github.io/dlpack, versions 0.x and 1.x of its ABI.
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"

namespace tcim_lite {
namespace {

// The structs of the ABI, in its order.
struct DlTensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t type_code;
  uint8_t type_bits;
  uint16_t type_lanes;
  const int64_t* shape;
  const int64_t* strides;  // in elements; null: row-major without gaps
  uint64_t byte_offset;
};
struct ManagedTensor {
  DlTensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};
struct VersionedTensor {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*deleter)(VersionedTensor*);
  uint64_t flags;
  DlTensor tensor;
};
static_assert(sizeof(DlTensor) == 48 && sizeof(ManagedTensor) == 64 && sizeof(VersionedTensor) == 80);

constexpr char kName[] = "dltensor", kUsed[] = "used_dltensor";
constexpr char kVersionedName[] = "dltensor_versioned", kVersionedUsed[] = "used_dltensor_versioned";
constexpr uint32_t kMajor = 1;
constexpr int kMaxAxes = 32;  // numpy 1's limit
// Memory that the host reads: its own, or pinned for CUDA or ROCm.
constexpr int32_t kCpu = 1, kCudaHost = 3, kRocmHost = 11;

struct DlDtype {
  uint8_t code, bits;
  std::string_view name;
  std::string_view numpy;  // of the same bits
};
constexpr DlDtype kDlDtypes[] = {
    {0, 8, "int8", "int8"},        {0, 16, "int16", "int16"},     {0, 32, "int32", "int32"},
    {0, 64, "int64", "int64"},     {1, 8, "uint8", "uint8"},      {1, 16, "uint16", "uint16"},
    {1, 32, "uint32", "uint32"},   {1, 64, "uint64", "uint64"},   {2, 16, "float16", "float16"},
    {2, 32, "float32", "float32"}, {2, 64, "float64", "float64"}, {4, 16, "bfloat16", "uint16"},
    {6, 8, "bool", "bool"},
};

const DlDtype& dtype_of(const DlTensor& tensor) {
  for (const DlDtype& dtype : kDlDtypes) {
    if (tensor.type_code == dtype.code && tensor.type_bits == dtype.bits && tensor.type_lanes == 1) return dtype;
  }
  fail(ErrorCode::Argument, "from_dlpack: elements of DLPack type code ", int(tensor.type_code), " with ",
       int(tensor.type_bits), " bits and ", int(tensor.type_lanes),
       " lane(s) cannot be converted; expected integers, bool, bfloat16, float16, float32 or float64, so convert it "
       "before, for example with tensor.float()");
}

// Strides in bytes. Refuses what no exporter makes and numpy would compute with.
std::vector<int64_t> checked_strides(const DlTensor& tensor, int64_t item_bytes) {
  const auto refuse = [](auto&&... what) {
    fail(ErrorCode::Argument, "from_dlpack: ", what..., "; the exporter's capsule is damaged");
  };
  if (tensor.ndim < 0 || tensor.ndim > kMaxAxes) refuse(tensor.ndim, " axes, expected 0 to ", kMaxAxes);
  if (tensor.ndim > 0 && tensor.shape == nullptr) refuse("a shape that is a null pointer");
  const auto axes = size_t(tensor.ndim);
  std::vector<int64_t> strides(axes);
  int64_t dense = item_bytes, reach = 0;
  bool empty = false;
  for (size_t axis = axes; axis-- > 0;) {
    const int64_t extent = tensor.shape[axis];
    if (extent < 0) refuse("extent ", extent, " of axis ", axis);
    empty = empty || extent == 0;
    strides[axis] = dense;
    int64_t step = 0, last = 0;
    if ((tensor.strides != nullptr && __builtin_mul_overflow(tensor.strides[axis], item_bytes, &strides[axis])) ||
        __builtin_mul_overflow(dense, extent == 0 ? 1 : extent, &dense) ||
        __builtin_mul_overflow(strides[axis] < 0 ? -(strides[axis] + 1) : strides[axis], extent, &step) ||
        __builtin_add_overflow(reach, step, &last))
      refuse("a tensor beyond 64 bits of memory");
    reach = last;
  }
  if (tensor.data == nullptr && !empty) refuse("elements at a null pointer");
  return strides;
}

// The array over the tensor's memory. `release` keeps the memory: Python calls its destructor with the array's.
std::pair<py::array, std::string> array_over(const DlTensor& tensor, const std::vector<int64_t>& strides,
                                             const py::capsule& release) {
  const DlDtype& dtype = dtype_of(tensor);
  const std::vector<int64_t> shape(tensor.shape, tensor.shape + tensor.ndim);
  py::array array(py::dtype(std::string(dtype.numpy)), shape, strides,
                  static_cast<std::byte*>(tensor.data) + tensor.byte_offset, release);
  array.attr("setflags")(py::arg("write") = false);  // others may have it read-only, and nobody here writes
  return {std::move(array), std::string(dtype.name)};
}

// Everything is checked before the capsule is taken over, so one that is refused stays its owner's.
template <typename Managed>
std::pair<py::array, std::string> take(const py::object& capsule, const char* name, const char* used) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (managed == nullptr) throw py::error_already_set();
  if constexpr (std::is_same_v<Managed, VersionedTensor>) {
    if (managed->major != kMajor)
      fail(ErrorCode::Unsupported, "from_dlpack: DLPack ", managed->major, ".", managed->minor, ", expected ", kMajor,
           ".x; ask the exporter for it with __dlpack__(max_version=(1, 0))");
  }
  const DlTensor& tensor = managed->tensor;
  if (tensor.device_type != kCpu && tensor.device_type != kCudaHost && tensor.device_type != kRocmHost)
    fail(ErrorCode::Argument, "from_dlpack: memory of DLPack device type ", tensor.device_type, ", id ",
         tensor.device_id, ", is not the host's; copy it to the host before, for example with tensor.cpu()");
  const DlDtype& dtype = dtype_of(tensor);
  const std::vector<int64_t> strides = checked_strides(tensor, dtype.bits / 8);
  if (PyCapsule_SetName(capsule.ptr(), used) != 0) throw py::error_already_set();
  const py::capsule release(managed, [](void* pointer) {
    auto* done = static_cast<Managed*>(pointer);
    if (done->deleter != nullptr) done->deleter(done);
  });
  return array_over(tensor, strides, release);
}

std::pair<py::array, std::string> dlpack_array(const py::object& capsule) {
  if (PyCapsule_CheckExact(capsule.ptr()) == 0) {
    fail(ErrorCode::Argument, "from_dlpack: expected a DLPack capsule, got ",
         py::str(py::type::of(capsule).attr("__name__")).cast<std::string>());
  }
  const char* const name = PyCapsule_GetName(capsule.ptr());
  const std::string_view text = name == nullptr ? std::string_view() : name;
  if (text == kVersionedName) return take<VersionedTensor>(capsule, kVersionedName, kVersionedUsed);
  if (text == kName) return take<ManagedTensor>(capsule, kName, kUsed);
  if (text == kUsed || text == kVersionedUsed)
    fail(ErrorCode::Argument, "from_dlpack: the capsule was used before; a capsule is good for one array, so call ",
         "__dlpack__() again");
  fail(ErrorCode::Argument, "from_dlpack: a capsule named '", text.substr(0, 100), "' is none of DLPack; expected '",
       kName, "' or '", kVersionedName, "'");
}

}  // namespace

void bind_dlpack(py::module_& m) {
  m.def("dlpack_array", &dlpack_array, py::arg("capsule"),
        "Takes the capsule over: a read-only array that keeps its memory, and the dtype. bfloat16 comes as uint16.");
}

}  // namespace tcim_lite
