#include "backends/cuda/blas.h"

#include <dlfcn.h>

#include <string>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/named_file.h"

namespace tcim_lite::cuda {
namespace {

// The part of cuBLAS's stable C interface that is used: its codes are the same in every release since 11.
constexpr int kTranspose = 1, kAsIs = 0;        // cublasOperation_t
constexpr int kHalf = 2, kFloat = 0;            // cudaDataType_t
constexpr int kComputeFloat = 68;               // CUBLAS_COMPUTE_32F
constexpr int kDefaultAlgorithm = -1;           // CUBLAS_GEMM_DEFAULT
constexpr int kSumInFloat = 16;                 // CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
constexpr uint64_t kWorkspaceBytes = 32 << 20;  // what cuBLAS itself takes on sm_90

struct Library {
  int (*create)(void**) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*set_stream)(void*, cudaStream_t) = nullptr;
  int (*set_workspace)(void*, void*, size_t) = nullptr;
  int (*set_math_mode)(void*, int) = nullptr;
  int (*gemm)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
              void*, int, int, int, int) = nullptr;

  bool complete() const { return create && destroy && set_stream && set_workspace && set_math_mode && gemm; }
};

Library open_library() {
  Library library;
  const auto wanted = env_text("TCIM_LITE_CUBLAS");
  if (wanted == "off") return library;
  void* file = nullptr;
  if (wanted) {
    // A name without a slash is looked up by the loader.
    if (wanted->find('/') != std::string::npos)
      check_named_file(*wanted, ErrorCode::Unsupported, concat("TCIM_LITE_CUBLAS='", *wanted, "'"));
    file = dlopen(wanted->c_str(), RTLD_NOW | RTLD_LOCAL);
    if (file == nullptr) fail(ErrorCode::Unsupported, "TCIM_LITE_CUBLAS='", *wanted, "': ", dlerror());
  }
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
    if (file == nullptr) file = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (file == nullptr) {
    log(LogLevel::Info, "no libcublas is found; float16 prefill uses the decode kernels, which are slower");
    return library;
  }
  const auto read = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(file, name));
  };
  read(library.create, "cublasCreate_v2");
  read(library.destroy, "cublasDestroy_v2");
  read(library.set_stream, "cublasSetStream_v2");
  read(library.set_workspace, "cublasSetWorkspace_v2");
  read(library.set_math_mode, "cublasSetMathMode");
  read(library.gemm, "cublasGemmEx");
  return library;
}

const Library& library() {
  static const Library instance = open_library();
  return instance;
}

void check(int status, const char* what) {
  if (status != 0)
    fail(ErrorCode::Device, "cuBLAS: ", what, " failed with status ", status, "; set TCIM_LITE_CUBLAS=off");
}

}  // namespace

std::unique_ptr<Blas> Blas::find(cudaStream_t stream) {
  if (!library().complete()) return nullptr;
  std::unique_ptr<Blas> blas(new Blas);
  check(library().create(&blas->handle_), "cublasCreate");
  blas->workspace_ = device_bytes(kWorkspaceBytes);
  check(library().set_stream(blas->handle_, stream), "cublasSetStream");
  check(library().set_workspace(blas->handle_, blas->workspace_.get(), kWorkspaceBytes), "cublasSetWorkspace");
  check(library().set_math_mode(blas->handle_, kSumInFloat), "cublasSetMathMode");
  return blas;
}

Blas::~Blas() {
  if (handle_ != nullptr && !in_forked_child()) library().destroy(handle_);
}

// Row-major [rows, n] is column-major [n, rows].
void Blas::multiply(const LinearArgs& args, Elem elem, void* products) {
  const float one = 1, zero = 0;
  check(library().gemm(handle_, kTranspose, kAsIs, args.outputs, args.rows, args.inputs, &one, args.weights, kHalf,
                       args.inputs, args.x, kHalf, int(args.x_stride), &zero, products, elem == kF16 ? kHalf : kFloat,
                       args.outputs, kComputeFloat, kDefaultAlgorithm),
        "cublasGemmEx");
}

}  // namespace tcim_lite::cuda
