// Infos and tensors.
#include <numeric>

#include "check.h"

using tcim::Tensor;
using tcim::TensorInfo;

static std::string Printed(const TensorInfo& info) {
  std::ostringstream text;
  text << info;
  return text.str();
}

// Counts up from 0.
static Tensor Counting(std::vector<int64_t> shape, tcim::DataType dtype) {
  const Tensor tensor = Tensor::CreateHostTensor(TensorInfo::CreateNDInfo(shape, tcim::INT32));
  auto* data = static_cast<int32_t*>(tensor.Data());
  std::iota(data, data + tensor.MemSize() / 4, 0);
  return tensor.AsType(dtype);
}

CASE(c27_an_info_prints_as_one_line) {
  CHECK_EQ(Printed(TensorInfo::CreateNDInfo({1, 1000}, tcim::INT8)),
           "TensorInfo: shape: [1,1000], dtype: INT8, format: ND, size: 1000, memsize: 1000");
  CHECK_EQ(Printed(TensorInfo::CreateNDInfo({1, 224, 224, 3}, tcim::FLOAT32)),
           "TensorInfo: shape: [1,224,224,3], dtype: FLOAT32, format: ND, size: 602112, memsize: 602112");
  CHECK_EQ(Printed(TensorInfo::CreateYUVInfo(640, 480, tcim::YUV420SP)),
           "TensorInfo: shape: [1,3,480,640], dtype: UINT8, format: YUV420SP, size: 460800, memsize: 460800");
  CHECK_EQ(Printed(TensorInfo()), "TensorInfo: shape: [], dtype: INT8, format: ND, size: 0, memsize: 0");
  CHECK_EQ(Printed(tcim::Module(folder + "/add.hmm").GetInputInfo("a")),
           "TensorInfo: shape: [2,3], dtype: FLOAT16, format: ND, size: 12, memsize: 12");
}

CASE(infos_are_made_and_refused) {
  const TensorInfo info = TensorInfo::CreateNDInfo({2, 3}, tcim::UINT16);
  CHECK_EQ(info.MemSize(), 12u);
  CHECK_EQ(info.DataType(), tcim::UINT16);
  CHECK_EQ(info.Device(), tcim::CPU);
  CHECK_EQ(info.AsType(tcim::FLOAT32).AsContiguous().MemSize(), 24u);
  CHECK_EQ(info.DataType(), tcim::UINT16);
  CHECK_EQ(tcim::Module(folder + "/add.hmm").GetInputInfo("a").Device(), tcim::HDPL);
  CHECK(TensorInfo::CreateNDInfo({2, 0}, tcim::INT8).Shape().empty());
  CHECK(TensorInfo::CreateNDInfo({2, -3}, tcim::INT8).Shape().empty());
  CHECK(TensorInfo::CreateNDInfo({1ll << 40, 1ll << 40}, tcim::INT8).Shape().empty());
  CHECK(TensorInfo::CreateNDInfo({2}, tcim::DataType(99)).Shape().empty());
  CHECK(info.AsType(tcim::DataType(-1)).Shape().empty());
  CHECK(TensorInfo::CreateYUVInfo(3, 4, tcim::YUV420SP).Shape().empty());
  CHECK(TensorInfo::CreateYUVInfo(4, 3, tcim::YUV420SP).Shape().empty());
  CHECK(TensorInfo::CreateYUVInfo(0, 4, 4, tcim::YUV444SP).Shape().empty());
  CHECK(TensorInfo::CreateYUVInfo(4, 4, tcim::ND).Shape().empty());
  CHECK(TensorInfo().AsContiguous().Shape().empty());
}

CASE(host_tensors_wrap_or_allocate) {
  const TensorInfo info = TensorInfo::CreateNDInfo({2, 2}, tcim::INT16);
  int16_t mine[6] = {1, 2, 3, 4, 5, 6};
  Tensor wrapped = Tensor::CreateHostTensor(info, sizeof(mine), mine);
  CHECK(wrapped.Data() == mine);
  CHECK_EQ(wrapped.MemSize(), 8u);
  CHECK_EQ(wrapped.Device(), tcim::CPU);
  CHECK(Tensor(info, mine + 2, 8).Data() == mine + 2);
  Tensor own = Tensor::CreateHostTensor(info);
  CHECK(AllEqual(own, 0));
  CHECK_EQ(wrapped.CopyTo(own), tcim::OK);
  mine[0] = 100;
  CHECK(Values(own) == std::vector<float>({1, 2, 3, 4}));
  CHECK(Values(wrapped) == std::vector<float>({100, 2, 3, 4}));
  CHECK_EQ(Tensor::CreateHostTensor(info, 7, mine).GetInitStatus(), tcim::INVALID_ARGUMENT);
  CHECK_EQ(Tensor::CreateHostTensor(info, 7).GetInitStatus(), tcim::INVALID_ARGUMENT);
  CHECK_EQ(Tensor(info, nullptr, 8).GetInitStatus(), tcim::INVALID_ARGUMENT);
  CHECK_EQ(Tensor::CreateHostTensor(TensorInfo()).GetInitStatus(), tcim::UNINITIALIZED);
  CHECK_EQ(Tensor::CreateDeviceTensor(info, 0, 5).GetInitStatus(), tcim::ERR_UNDEFINED);
  CHECK_EQ(Tensor::CreateDeviceTensor(info, 0, 0, "Xh1HdiBackend").GetInitStatus(), tcim::UNSUPPORTED);
  const Tensor empty;
  CHECK(empty.Data() == nullptr);
  CHECK_EQ(empty.MemSize(), 0u);
  CHECK_EQ(empty.GetInitStatus(), tcim::UNINITIALIZED);
  CHECK_EQ(empty.CopyTo(own), tcim::UNINITIALIZED);
  CHECK_EQ(own.CopyTo(empty), tcim::UNINITIALIZED);
  CHECK_EQ(empty.Clone().GetInitStatus(), tcim::UNINITIALIZED);
  CHECK_EQ(empty.ToHost().AsType(tcim::INT8).SelectROI({0}, {1}).GetInitStatus(), tcim::UNINITIALIZED);
}

CASE(tensors_copy_between_places_and_dtypes) {
  const Tensor host = Counting({3, 4}, tcim::FLOAT16);
  Tensor device = Tensor::CreateDeviceTensor(host.Info());
  CHECK_EQ(device.Device(), tcim::HDPL);
  CHECK_EQ(host.CopyTo(device), tcim::OK);
  Tensor other = device.Clone(), blank = device.Clone(false);
  CHECK(Values(other) == Values(host));
  CHECK_EQ(other.Device(), tcim::HDPL);
  CHECK_EQ(blank.MemSize(), device.MemSize());
  CHECK_EQ(device.CopyTo(blank), tcim::OK);
  CHECK(Values(blank) == Values(host));
  CHECK_EQ(device.ToHost().Device(), tcim::CPU);
  CHECK(host.ToHost(true).Data() == host.Data());  // itself
  // CastTo works on temporaries, at both ends.
  Tensor ints = Tensor::CreateHostTensor(host.Info().AsType(tcim::INT32));
  CHECK_EQ(device.ToHost(true).CastTo(ints), tcim::OK);
  CHECK_EQ(static_cast<int32_t*>(ints.Data())[11], 11);
  CHECK_EQ(ints.CastTo(device.SelectROI({0, 0}, {3, 4})), tcim::OK);
  CHECK_EQ(host.CopyTo(ints), tcim::INVALID_ARGUMENT);  // dtypes differ
  CHECK_EQ(host.CopyTo(Tensor::CreateHostTensor(TensorInfo::CreateNDInfo({5}, tcim::FLOAT16))), tcim::INVALID_ARGUMENT);
  CHECK_EQ(Counting({300}, tcim::INT32).CastTo(Tensor::CreateHostTensor(TensorInfo::CreateNDInfo({300}, tcim::UINT8))),
           tcim::INVALID_ARGUMENT);
}

CASE(regions_are_views) {
  const Tensor whole = Counting({4, 5}, tcim::UINT8);
  const Tensor region = whole.SelectROI({1, 2}, {2, 3});
  CHECK(region.Info().Shape() == std::vector<int64_t>({2, 3}));
  CHECK(region.Data() == static_cast<uint8_t*>(whole.Data()) + 7);
  CHECK(Values(region) == std::vector<float>({7, 8, 9, 12, 13, 14}));
  CHECK(region.ToHost(true).Data() != region.Data());
  CHECK(region.ToHost().Data() == region.Data());
  CHECK_EQ(region.Buffer().Size(), 8u);  // from the first element to the last
  CHECK_EQ(Tensor::CreateHostTensor(TensorInfo::CreateNDInfo({2, 3}, tcim::UINT8)).CopyTo(region), tcim::OK);
  CHECK(Values(whole) == std::vector<float>({0, 1, 2, 3, 4, 5, 6, 0, 0, 0, 10, 11, 0, 0, 0, 15, 16, 17, 18, 19}));
  CHECK_EQ(whole.SelectROI({1, 2}, {2, 4}).GetInitStatus(), tcim::INVALID_ARGUMENT);
  CHECK_EQ(whole.SelectROI({-1, 2}, {2, 1}).GetInitStatus(), tcim::INVALID_ARGUMENT);
  CHECK_EQ(whole.SelectROI({0}, {1}).GetInitStatus(), tcim::INVALID_ARGUMENT);
}

// Writes a number that says where it stands into every byte, and looks for it in the planes.
static void CheckPlanes(tcim::DataFmt format, int64_t rows, int64_t columns) {
  const int64_t batch = 2, width = 4, height = 6, luma = width * height, chroma = rows * columns * 2;
  const TensorInfo info = TensorInfo::CreateYUVInfo(batch, width, height, format);
  CHECK_EQ(info.MemSize(), size_t(batch * (luma + chroma)));
  std::vector<uint8_t> bytes(info.MemSize());
  std::iota(bytes.begin(), bytes.end(), uint8_t(0));
  const Tensor image = Tensor::CreateHostTensor(info, bytes.size(), bytes.data());
  Tensor y, uv;
  CHECK_EQ(image.SplitYUV(y, uv), tcim::OK);
  CHECK(y.Info().Shape() == std::vector<int64_t>({batch, height, width}));
  CHECK(uv.Info().Shape() == std::vector<int64_t>({batch, rows, columns, 2}));
  const std::vector<float> y_values = Values(y), uv_values = Values(uv);
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t i = 0; i < luma; ++i) {
      CHECK_EQ(y_values[n * luma + i], float(bytes[n * (luma + chroma) + i]));
    }
    for (int64_t i = 0; i < chroma; ++i) {
      CHECK_EQ(uv_values[n * chroma + i], float(bytes[n * (luma + chroma) + luma + i]));
    }
  }
  // A plane's buffer is its part of the memory; a rectangle of a plane can be copied into another image.
  CHECK(uv.Buffer().Data() == bytes.data() + luma);
  const Tensor device = Tensor::CreateDeviceTensor(info);
  Tensor to_y, to_uv;
  CHECK_EQ(device.SplitYUV(to_y, to_uv), tcim::OK);
  CHECK_EQ(y.CopyTo(to_y.SelectROI({0, 0, 0}, y.Info().Shape())), tcim::OK);
  CHECK_EQ(uv.CopyTo(to_uv.SelectROI({0, 0, 0, 0}, uv.Info().Shape())), tcim::OK);
  CHECK(Values(device) == Values(image));
  CHECK_EQ(image.SelectROI({0, 0, 0}, {1, 2, 2}).GetInitStatus(), tcim::INVALID_ARGUMENT);
}

CASE(images_split_into_planes) {
  CheckPlanes(tcim::YUV420SP, 3, 2);
  CheckPlanes(tcim::YUV422SP, 6, 2);
  CheckPlanes(tcim::YUV444SP, 6, 4);
  Tensor y = Counting({2}, tcim::INT8), uv = y;
  void* before = y.Data();
  CHECK_EQ(Counting({1, 6, 4}, tcim::UINT8).SplitYUV(y, uv), tcim::INVALID_ARGUMENT);
  CHECK_EQ(Tensor().SplitYUV(y, uv), tcim::UNINITIALIZED);
  CHECK(y.Data() == before && uv.Data() == before);
}
