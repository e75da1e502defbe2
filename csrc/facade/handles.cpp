// Copies, moves and ends of all handles: out of line, so that callers share one definition of them.
#include "facade/access.h"
#include "tcim/tcim_image_process.h"

// The destructor empties the handle; -fno-lifetime-dse keeps that store, so a second run finds nothing (C-25).
#define TCIM_HANDLE(Scoped, Name)                       \
  Scoped::Name(const Name&) = default;                  \
  Scoped::Name(Name&&) noexcept = default;              \
  Scoped& Scoped::operator=(const Name&) = default;     \
  Scoped& Scoped::operator=(Name&&) noexcept = default; \
  Scoped::~Name() { impl_.reset(); }

namespace tcim {

using namespace internal;

TCIM_HANDLE(DevManager, DevManager)
TCIM_HANDLE(Buffer, Buffer)
TCIM_HANDLE(TensorInfo, TensorInfo)
TCIM_HANDLE(Tensor, Tensor)
TCIM_HANDLE(Stream, Stream)
TCIM_HANDLE(Module, Module)
TCIM_HANDLE(Module::WeightManager, WeightManager)
TCIM_HANDLE(ImageOps::Resizer, Resizer)
TCIM_HANDLE(ImageOps::ColorConverter, ColorConverter)

DevManager::DevManager() = default;
Buffer::Buffer() = default;
TensorInfo::TensorInfo() = default;
Tensor::Tensor() = default;
Module::Module() = default;
Module::WeightManager::WeightManager() = default;

}  // namespace tcim
