// The vendor's C++ runtime API on the tcim_lite emulator. C++11 or later.
//
// - Nothing here throws, except std::bad_alloc if the host has no memory for a handle. A call that fails returns a
//   Status other than OK; an object that could not be made has such a GetInitStatus(). One line about it goes to the
//   log (standard error, TCIM_LITE_LOG), and GetLastError() returns it.
// - Every class is a handle: copies share what they stand for, and any of them may be destroyed first. Threads may
//   call any function at the same time; if two threads change one handle object, the caller must lock it.
// - Destructors run out of line and leave an empty handle, so running one by hand before the scope ends is harmless
//   (C-25). libtcim_runtime_lite.so is built with -fno-lifetime-dse for that; callers need no flag.
// - What is marked "extra" is not in the vendor's API. Marks such as C-25 name corners of the API contract
//   (docs/conformance.md).
#ifndef TCIM_TCIM_RUNTIME_H_
#define TCIM_TCIM_RUNTIME_H_

// Programs rely on the vendor's header for these.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#define TCIM_API __attribute__((visibility("default")))

namespace tcim {

// What the handles below stand for; private to the library.
namespace internal {
struct Access;
struct DevManagerState;
struct BufferState;
struct TensorInfoState;
struct TensorState;
struct StreamState;
struct ModuleState;
struct WeightManagerState;
struct OptionState;
}  // namespace internal

// All enumerations are unscoped on purpose: tcim::OK and tcim::Status::OK are the same, and all convert to int.

enum Status : int {
  ERR_UNDEFINED = -1,  // everything without a value of its own: bad files, full or missing devices, aborted loads
  OK = 0,
  UNINITIALIZED = 1,     // a default-constructed object, or a dummy input without memory
  INVALID_ARGUMENT = 2,  // an unknown name, a size, dtype or value that does not fit; 4 in C
  UNSUPPORTED = 3,
  // Names that programs may ask for. Nothing here returns them.
  OUT_OF_RANGE = 4,  // 2 in C
  ALREADY_EXISTS = 5,
  PERMISSION_DENIED = 6,
  UNAVAILABLE = 7,
  UNAUTHENTICATED = 8,
  RESOURCE_EXHAUSTED = 9,
  TIMEOUT = 10,
  ERR_KERNEL = 11,
  ERR_FATAL = 12,
  SESSION_EXPIRED = 13,
  RECOVERING = 14,
};

enum DataType : int { INT8, UINT8, INT16, UINT16, INT32, UINT32, FLOAT16, FLOAT32 };

// ND is a plain array. The others are semi-planar 8-bit images: see TensorInfo::CreateYUVInfo.
enum DataFmt : int { ND, YUV420SP, YUV422SP, YUV444SP };

enum Device : int {
  CPU,   // host memory
  HDPL,  // memory of an (emulated) device
};

// The first line is the emulated version, "vX.Y.Z"; the emulator's own follows.
TCIM_API std::string GetVersion();

// The number of logical devices, 0 for a backend that is not emulated. "" is the default backend. Starts nothing.
TCIM_API int GetDeviceNum(const std::string& backend = "");

// Extra: what the last failed call of this thread reported, "" if none failed.
TCIM_API std::string GetLastError();

// An ordered list of devices; the first is rank 0. Whether they exist is checked by the load that uses them.
class TCIM_API DevManager {
 public:
  DevManager();
  DevManager(const DevManager&);
  DevManager(DevManager&&) noexcept;
  DevManager& operator=(const DevManager&);
  DevManager& operator=(DevManager&&) noexcept;
  ~DevManager();

  static DevManager Create(std::vector<int32_t> device_ids, std::string backend = "");
  static DevManager Create(int device_id, std::string backend = "");

  tcim::Status GetInitStatus() const;  // extra

 private:
  friend struct internal::Access;
  std::shared_ptr<internal::DevManagerState> impl_;
};

// Memory on the host or on a device.
class TCIM_API Buffer {
 public:
  // No memory: Size() is 0, GetInitStatus() UNINITIALIZED.
  Buffer();
  Buffer(const Buffer&);
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(const Buffer&);
  Buffer& operator=(Buffer&&) noexcept;
  ~Buffer();

  // Without `ptr`: new memory, zeroed. With it: the caller's memory, which must live as long as the buffer, its
  // sub-buffers and the tensors on it.
  static Buffer CreateHostBuffer(size_t size, void* ptr = nullptr);

  // New zeroed memory. `type` "reserved" is ordinary memory here.
  static Buffer CreateDeviceBuffer(size_t size, int device_id, std::string backend = "", std::string type = "");

  // Wraps device memory made elsewhere. It is not counted against the device's capacity.
  static Buffer CreateDeviceBuffer(void* dev_ptr, size_t size, int device_id, std::string backend = "");

  // New memory of the same size in the same place.
  Buffer Clone(bool auto_copy = true) const;

  // All wait for queued runs that use the memory, and refuse what does not fit, before anything is written. [offset,
  // offset + size) are bytes of this buffer.
  tcim::Status CopyFromHost(const void* src, size_t size, size_t offset = 0);
  tcim::Status CopyToHost(void* dst, size_t size, size_t offset = 0) const;
  tcim::Status MemSet(int value, size_t size, size_t offset);
  // All of this buffer to the beginning of `dst`, between any two places. The two may overlap.
  tcim::Status CopyTo(const Buffer& dst) const;
  // Its first `size` bytes.
  tcim::Status CopyTo(const Buffer& dst, size_t size) const;

  // A view of [offset, offset + size) that keeps the memory alive.
  Buffer GetSubBuffer(size_t size, size_t offset) const;

  // Null without memory. On the emulator's CPU devices it may be dereferenced, which a device pointer of the card may
  // not. Memory spread over several devices has no single address: null, too.
  void* Data() const;
  size_t Size() const;  // bytes
  tcim::Device Device() const;
  tcim::Status GetInitStatus() const;

 private:
  friend struct internal::Access;
  std::shared_ptr<internal::BufferState> impl_;
};

// What a tensor looks like. Immutable.
class TCIM_API TensorInfo {
 public:
  // Describes nothing: an empty shape, MemSize() 0.
  TensorInfo();
  TensorInfo(const TensorInfo&);
  TensorInfo(TensorInfo&&) noexcept;
  TensorInfo& operator=(const TensorInfo&);
  TensorInfo& operator=(TensorInfo&&) noexcept;
  ~TensorInfo();

  // Dense, on the host.
  static TensorInfo CreateNDInfo(std::vector<int64_t> shape, tcim::DataType dtype);

  // A semi-planar 8-bit image, or `batch` of them one after the other: all luma rows (Y), then the chroma rows with U
  // and V interleaved. Dense, UINT8, shape [batch, 3, height, width]. MemSize() is not the product of the shape, but
  //   YUV420SP  batch * height * width * 3 / 2   width and height even
  //   YUV422SP  batch * height * width * 2       width even
  //   YUV444SP  batch * height * width * 3
  // Tensor::SplitYUV gives the planes.
  static TensorInfo CreateYUVInfo(int width, int height, tcim::DataFmt format);
  static TensorInfo CreateYUVInfo(int batch, int width, int height, tcim::DataFmt format);

  // The reference is valid while any tensor or info that shares this description lives; for those a module returns,
  // while the module lives.
  const std::vector<int64_t>& Shape() const;
  tcim::DataType DataType() const;
  tcim::DataFmt Format() const;
  tcim::Device Device() const;
  size_t MemSize() const;       // bytes of the elements
  size_t DataTypeSize() const;  // bytes of one element, 0 of an info that describes nothing

  TensorInfo AsContiguous() const;  // with dense strides
  TensorInfo AsType(tcim::DataType dtype) const;

 private:
  friend struct internal::Access;
  std::shared_ptr<const internal::TensorInfoState> impl_;
};

// "TensorInfo: shape: [1,1000], dtype: INT8, format: ND, size: 1000, memsize: 1000" (C-27), without a line break.
// Both sizes are bytes, as the vendor's programs for images print them.
TCIM_API std::ostream& operator<<(std::ostream& out, const TensorInfo& info);

// Memory and what it looks like. Tensors that a function fills are taken as const references: they are handles, and a
// temporary is as good as a variable.
class TCIM_API Tensor {
 public:
  Tensor();
  Tensor(const Tensor&);
  Tensor(Tensor&&) noexcept;
  Tensor& operator=(const Tensor&);
  Tensor& operator=(Tensor&&) noexcept;
  virtual ~Tensor();

  // On the buffer's memory, from its beginning.
  Tensor(const TensorInfo& info, const tcim::Buffer& buffer);
  // On `size` bytes of the caller's host memory, which must outlive the tensor.
  Tensor(const TensorInfo& info, void* ptr, size_t size);

  // Host memory with the layout of `info`, wherever that lives. Without `ptr`: new and zeroed. With it: the caller's
  // `mem_size` bytes (0: info.MemSize()), which must outlive the tensor.
  static Tensor CreateHostTensor(const TensorInfo& info, size_t mem_size = 0, void* ptr = nullptr);
  // New zeroed device memory of `mem_size` bytes (0: what the info needs). An info of a model for several devices whose
  // first device is `device_id` gives memory on all of them, as that model's inputs need.
  static Tensor CreateDeviceTensor(const TensorInfo& info, size_t mem_size = 0, int device_id = 0,
                                   const std::string& backend = "");

  // The first element. Null without memory; see Buffer::Data about devices. Waits for queued runs that use the memory.
  void* Data() const;
  const TensorInfo& Info() const;
  size_t MemSize() const;       // bytes of the elements
  tcim::Buffer Buffer() const;  // the memory, from the first element to the last
  tcim::Device Device() const;
  tcim::Status GetInitStatus() const;  // UNINITIALIZED, too, for an unbound dummy input, which has only an Info()

  // Copies this into `dst`: equal dtypes, equal element counts, any strides, any two places.
  tcim::Status CopyTo(const Tensor& dst) const;
  // The same with conversion of dtype: floats round to nearest even, integers must fit, uint8 and int8 reinterpret.
  tcim::Status CastTo(const Tensor& dst) const;
  Tensor AsType(tcim::DataType dtype) const;  // a converted copy in the same place, dense
  // The same; what the flag asks for, a copy or one that is dense, is not known, and this is both.
  Tensor AsType(tcim::DataType dtype, bool flag) const;

  // Device: a new host tensor, dense if this is or when asked for. Host: this tensor, unless it is strided and a dense
  // one is asked for.
  Tensor ToHost(bool to_contiguous = false) const;
  Tensor Clone(bool auto_copy = true) const;

  // Views of the planes of an image tensor (TensorInfo::CreateYUVInfo), ND, sharing its memory: `y` [batch, height,
  // width]; `uv` [batch, height / 2, width / 2, 2] for YUV420SP, [batch, height, width / 2, 2] for YUV422SP, [batch,
  // height, width, 2] for YUV444SP. Leaves both alone when it fails.
  tcim::Status SplitYUV(Tensor& y, Tensor& uv) const;

  // A rectangular view that shares memory and keeps the strides. `start` is inclusive, `shape` counts. Image tensors
  // are split first.
  Tensor SelectROI(const std::vector<int64_t>& start, const std::vector<int64_t>& shape) const;

 private:
  friend struct internal::Access;
  std::shared_ptr<internal::TensorState> impl_;
};

// Runs on one stream follow each other; runs on different streams overlap. Modules without a stream of their own share
// one per device.
class TCIM_API Stream {
 public:
  Stream();
  // auto_yield has no effect on results.
  Stream(bool auto_yield);
  Stream(const Stream&);
  Stream(Stream&&) noexcept;
  Stream& operator=(const Stream&);
  Stream& operator=(Stream&&) noexcept;
  ~Stream();

 private:
  friend struct internal::Access;
  std::shared_ptr<internal::StreamState> impl_;
};

constexpr bool kAutoYield = true;

// A loaded model. Inputs and outputs answer to their compiled name, the exporter's name, and either with a trailing
// ".hmcc.format". Values and bindings persist from run to run. An error of a queued run is returned once, by the next
// Run, Sync or GetOutput; reading a tensor waits for the run, but does not return its error.
class TCIM_API Module {
 public:
  // Modules loaded with one manager share equal weights on a device. Opaque and lazy: memory appears at the first load.
  // A module keeps its manager's weights alive, not the other way round.
  class TCIM_API WeightManager {
   public:
    WeightManager();  // GetInitStatus() is UNINITIALIZED; a load that uses it fails
    WeightManager(const WeightManager&);
    WeightManager(WeightManager&&) noexcept;
    WeightManager& operator=(const WeightManager&);
    WeightManager& operator=(WeightManager&&) noexcept;
    ~WeightManager();

    static WeightManager CreateWeightManager(int device_id);
    static WeightManager CreateWeightManager(const DevManager& devices);

    // Extra. Forgets weights that no module uses; loaded modules keep theirs, and later loads work as before.
    tcim::Status Release();

    tcim::Status GetInitStatus() const;

   private:
    friend struct internal::Access;
    std::shared_ptr<internal::WeightManagerState> impl_;
  };

  // How to load. Copies are independent. Setters return the option (extra).
  class TCIM_API Option {
   public:
    Option();  // device 0, weights of its own
    Option(const WeightManager& weights);
    Option(const DevManager& devices);  // extra
    Option(int device_id);
    Option(const Option&);
    Option& operator=(const Option&);
    ~Option();

    // These inputs get no memory at load; bind or set them before Run. Unknown names are ignored with a warning.
    Option& SetDummyTensors(const std::vector<std::string>& names);
    // The model is the bytes [offset, offset + size) of the file or buffer; any alignment.
    Option& SetModelOffset(size_t offset, size_t size);
    // Accepted; files are mapped, and read when used, anyway.
    Option& EnableHostLazyLoading(bool enable);
    // Accepted without effect; the meaning on the card is not known.
    Option& EnableIOLazyMode(bool enable);
    // The same; older programs of the vendor call it.
    Option& EnableLazyMode(bool enable);
    // Called on the loading thread several times during a load, while weights are checked about every 64 MiB; a load
    // fails with ERR_UNDEFINED as soon as it returns true or throws.
    Option& RegisterAbortCbFn(std::function<bool()> should_abort);

    // As older revisions of the vendor's module pool use them: the first device, -1 without any, and what a load shares
    // weights through. A load uses `weight_manager`; it fails if that is of another device than `device_id`.
    int device_id;
    WeightManager weight_manager;

   private:
    friend struct internal::Access;
    std::shared_ptr<internal::OptionState> impl_;
  };

  class TCIM_API RunOption {
   public:
    RunOption();
    // How many times one Run repeats the graph; below 1, Run fails.
    RunOption& Rounds(int rounds);

   private:
    friend class Module;
    int rounds_;
  };

  Module();  // falsy, GetInitStatus() UNINITIALIZED
  Module(const std::string& path, const Option& option = Option());
  Module(const Module&);
  Module(Module&&) noexcept;
  Module& operator=(const Module&);
  Module& operator=(Module&&) noexcept;
  virtual ~Module();

  // C-30: falsy on failure, with the reason in GetInitStatus() and GetLastError().
  static Module LoadFromFile(const std::string& path, const Option& option = Option());
  // A model that contains its weights; the bytes are copied.
  static Module LoadFromMem(const void* data, int64_t size, const Option& option = Option());

  // The same on this module. A failed load leaves a loaded module as it was.
  tcim::Status LoadModel(const std::string& path, const Option& option = Option());
  tcim::Status LoadModel(const void* data, int64_t size, const Option& option = Option());

  operator bool() const;
  bool operator!() const;
  tcim::Status GetInitStatus() const;

  // Getters of a module that is not loaded return 0, "", or an empty info or list.
  int GetInputNum() const;
  int GetOutputNum() const;
  std::string GetInputName(int index) const;
  std::string GetOutputName(int index) const;
  TensorInfo GetInputInfo(const std::string& name) const;
  TensorInfo GetOutputInfo(const std::string& name) const;
  std::string GetCustomMsg() const;  // JSON given to the compiler, "" if none
  std::string GetBackendName() const;
  std::string GetModelVersion() const;
  int GetCoreNum() const;
  // Extra: the devices the module runs on, by rank, such as CreateDeviceTensor takes.
  std::vector<int32_t> GetDeviceIds() const;

  // Host tensor: copied, at call time and converted, into whatever the input is bound to. Device tensor: bound by
  // reference; setting it again costs next to nothing (C-26).
  tcim::Status SetInput(const std::string& name, const Tensor& tensor);
  // A live alias of the device memory the input uses.
  Tensor GetInput(const std::string& name) const;
  // Copies the input into `tensor`, in its layout and dtype.
  tcim::Status GetInput(const std::string& name, const Tensor& tensor) const;
  // Device tensor: bound by reference. Host tensor: filled when a run completes; it must live that long.
  tcim::Status SetOutput(const std::string& name, const Tensor& tensor);
  // A fresh host copy.
  Tensor GetOutput(const std::string& name) const;
  // Copies the output into `tensor`, in its layout and dtype.
  tcim::Status GetOutput(const std::string& name, const Tensor& tensor) const;

  // The device side by name: binds, and live aliases.
  tcim::Status SetDevInput(const std::string& name, const Tensor& tensor);
  Tensor GetDevInput(const std::string& name) const;
  // The tensor may be an input of the module, but must not overlap another output or a cache.
  tcim::Status SetDevOutput(const std::string& name, const Tensor& tensor);
  Tensor GetDevOutput(const std::string& name) const;

  // Queues one inference; waits for it if `sync`.
  tcim::Status Run(bool sync = false, const RunOption& option = RunOption());
  // Waits for everything queued on the module's stream.
  tcim::Status Sync();
  // Later runs use this stream; it may change between runs.
  tcim::Status SetStream(const Stream& stream);

 private:
  friend struct internal::Access;
  std::shared_ptr<internal::ModuleState> impl_;
};

}  // namespace tcim

#endif  // TCIM_TCIM_RUNTIME_H_
