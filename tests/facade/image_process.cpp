// ImageOps as the vendor's video programs use it: a decoded frame is copied plane by plane into an image, resized, and
// read again. Included by the name that those programs have.
//
//   image_process resize FORMAT BATCH WIDTH HEIGHT PLACE IN OUT  OUT_WIDTH OUT_HEIGHT X Y W H LEFT TOP RIGHT BOTTOM
//                 INTERPOLATION ALIGNMENT FILL_Y FILL_U FILL_V        PLACE: host or device; IN and OUT: files of bytes
//   image_process colours FORMAT BATCH WIDTH HEIGHT PLACE IN OUT
//   image_process api          what has no result in bytes; prints the messages of mistakes
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "expect.h"
#include "tcim/tcim_imageops.h"
#include "tcim/tcim_runtime.h"

namespace ops = tcim::ImageOps;
using ops::ColorConverter;
using ops::RectPad;
using ops::RectRoi;
using ops::Resizer;
using tcim::Tensor;
using tcim::TensorInfo;

namespace {

Tensor make(const TensorInfo& info, bool device) {
  return device ? Tensor::CreateDeviceTensor(info) : Tensor::CreateHostTensor(info);
}

int work(int argc, char** argv) {
  EXPECT(argc == 9 || argc == 24);
  const auto number = [&](int index) { return std::atoi(argv[index]); };
  const auto format = tcim::DataFmt(number(2));
  const int batch = number(3), width = number(4), height = number(5);
  const bool device = argv[6] == std::string("device");
  std::ifstream file(argv[7], std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());

  const TensorInfo info = TensorInfo::CreateYUVInfo(batch, width, height, format);
  Tensor image = make(info, device), result;
  EXPECT(info.MemSize() == bytes.size());
  if (batch == 1) {  // as a decoder gives it
    Tensor y, uv;
    EXPECT(image.SplitYUV(y, uv) == tcim::Status::OK);
    const size_t luma = size_t(width) * size_t(height);
    EXPECT(tcim::Buffer::CreateHostBuffer(luma, bytes.data()).CopyTo(y.Buffer()) == tcim::Status::OK);
    EXPECT(tcim::Buffer::CreateHostBuffer(bytes.size() - luma, bytes.data() + luma).CopyTo(uv.Buffer()) ==
           tcim::Status::OK);
  } else {
    EXPECT(Tensor(info, bytes.data(), bytes.size()).CopyTo(image) == tcim::Status::OK);
  }
  if (argc == 9) {
    ColorConverter::Option option(format);
    ColorConverter converter;
    EXPECT(converter.Init(option.SetMaxSize(width, height)) == 0);
    result = make(TensorInfo::CreateNDInfo({batch, 3, height, width}, tcim::UINT8), device);
    EXPECT(converter.Run(image, result, true) == tcim::Status::OK);
  } else {
    auto option = Resizer::Option(format, 0);
    option.SetMaxSize(number(9), number(10));
    Resizer resizer;
    EXPECT(resizer.Init(option) == 0);
    RectRoi roi(number(11), number(12), number(13), number(14));
    RectPad pad(number(15), number(16), number(17), number(18));
    Resizer::RunOption run_opt(roi);
    run_opt.SetPad(pad).SetPadVal({{number(21), number(22), number(23)}});
    run_opt.interp_mode = Resizer::EnInterpMode(number(19));
    run_opt.align_mode = Resizer::EnAlignMode(number(20));
    result = make(TensorInfo::CreateYUVInfo(batch, number(9), number(10), format), device);
    EXPECT(resizer.Run(image, result, run_opt, true) == tcim::Status::OK);
  }
  EXPECT(result.Device() == (device ? tcim::HDPL : tcim::CPU));
  const Tensor host = result.ToHost(true);
  std::ofstream(argv[8], std::ios::binary)
      .write(static_cast<const char*>(host.Data()), std::streamsize(host.MemSize()));
  return 0;
}

// Everything that both operations have.
int check_runner(ops::ImageRunner& runner, const Tensor& input, const Tensor& output) {
  EXPECT(runner.GetInputNum() == 1 && runner.GetOutputNum() == 1);
  EXPECT(runner.GetInputTensor(0).Data() == input.Data() && runner.GetOutputTensor(0).Data() == output.Data());
  EXPECT(runner.GetInputTensor(1).GetInitStatus() == tcim::UNINITIALIZED);
  std::cout << tcim::GetLastError() << "\n";
  EXPECT(runner.GetOutputTensor(7).Data() == nullptr);
  tcim::Stream stream(tcim::kAutoYield), gone;
  EXPECT(runner.SetStream(stream) == tcim::OK && runner.SetStream(runner.GetStream()) == tcim::OK);
  EXPECT(runner.Sync() == tcim::OK);
  tcim::Stream kept(std::move(gone));
  EXPECT(runner.SetStream(gone) == tcim::UNINITIALIZED && runner.Sync() == tcim::OK);
  return 0;
}

int check_config() {
  ops::Config& config = ops::Config::Global();
  EXPECT(config.GetDirPath() == std::getenv("TCIM_RUNTIME_PATH"));
  EXPECT(config.SetEnvName("NO_SUCH_VARIABLE").GetDirPath().empty());
  EXPECT(config.SetDirPath("/data").GetDirPath() == "/data" && &config == &ops::Config::Global());
  return 0;
}

#define REFUSED(call, status)                       \
  do {                                              \
    EXPECT((call) == (status));                     \
    std::cout << tcim::GetLastError() << std::endl; \
  } while (false)

int check_resizer() {
  const auto refused = tcim::INVALID_ARGUMENT;
  const TensorInfo info = TensorInfo::CreateYUVInfo(6, 4, tcim::YUV420SP);
  Tensor image = Tensor::CreateHostTensor(info), result = Tensor::CreateHostTensor(info), empty;
  Tensor other = Tensor::CreateHostTensor(TensorInfo::CreateYUVInfo(6, 4, tcim::YUV444SP));
  Tensor two = Tensor::CreateHostTensor(TensorInfo::CreateYUVInfo(2, 6, 4, tcim::YUV420SP));
  Tensor plain = Tensor::CreateHostTensor(TensorInfo::CreateNDInfo({1, 36}, tcim::UINT8));
  for (size_t i = 0; i < 36; ++i) static_cast<uint8_t*>(result.Data())[i] = 77;
  const Resizer::RunOption whole(RectRoi(0, 0, 6, 4));
  EXPECT(whole.interp_mode == Resizer::Bilinear && whole.align_mode == Resizer::AlignCornerFalse);
  EXPECT(whole.pad.left == 0 && whole.pad_val[0] == 0 && whole.pad_val[1] == 128 && whole.pad_val[2] == 128);
  EXPECT(Resizer::Option().format == tcim::YUV422SP && Resizer::Option().max_w == 1920);
  EXPECT(Resizer::Option().max_h == 1080 && Resizer::Option().device_id == 0);

  Resizer resizer;
  REFUSED(resizer.Run(image, result, whole), tcim::UNINITIALIZED);
  REFUSED(resizer.Init(Resizer::Option(tcim::ND)), refused);
  REFUSED(resizer.Init(Resizer::Option(tcim::DataFmt(9))), refused);
  REFUSED(resizer.Init(Resizer::Option(tcim::YUV420SP, 5)), tcim::ERR_UNDEFINED);
  REFUSED(resizer.Init(Resizer::Option(tcim::YUV420SP, -1)), tcim::ERR_UNDEFINED);
  REFUSED(resizer.Init(Resizer::Option(tcim::YUV420SP).SetMaxSize(0, 4)), refused);
  EXPECT(resizer.Init() == tcim::OK);
  REFUSED(resizer.Run(image, result, whole), refused);  // 420 and not 422
  EXPECT(resizer.Init(Resizer::Option(tcim::YUV420SP).SetMaxSize(4, 4)) == tcim::OK);
  REFUSED(resizer.Run(image, result, whole), refused);
  EXPECT(resizer.Init(Resizer::Option(tcim::YUV420SP)) == tcim::OK);
  REFUSED(resizer.Run(empty, result, whole), tcim::UNINITIALIZED);
  REFUSED(resizer.Run(image, empty, whole), tcim::UNINITIALIZED);
  REFUSED(resizer.Run(plain, result, whole), refused);
  REFUSED(resizer.Run(image, plain, whole), refused);
  REFUSED(resizer.Run(image, other, whole), refused);
  REFUSED(resizer.Run(image, two, whole), refused);
  const RectRoi crops[] = {{0, 0, 7, 4}, {1, 0, 6, 4}, {0, -1, 6, 4}, {0, 0, 0, 0}, {2, 3, 2147483647, 2147483647}};
  for (const RectRoi& crop : crops) REFUSED(resizer.Run(image, result, Resizer::RunOption(crop)), refused);
  const RectPad pads[] = {{-1, 0, 0, 0}, {3, 0, 3, 0}, {0, 4, 0, 0}, {0, 0, 0, 2147483647}};
  for (const RectPad& pad : pads) {
    REFUSED(resizer.Run(image, result, Resizer::RunOption(RectRoi(0, 0, 6, 4), pad)), refused);
  }
  Resizer::RunOption option = whole;
  REFUSED(resizer.Run(image, result, option.SetPadVal({{0, 256, 0}})), refused);
  option = whole;
  option.interp_mode = Resizer::EnInterpMode(2);
  REFUSED(resizer.Run(image, result, option), refused);
  option = whole;
  option.align_mode = Resizer::EnAlignMode(-1);
  REFUSED(resizer.Run(image, result, option), refused);
  Tensor wide = Tensor::CreateHostTensor(TensorInfo::CreateYUVInfo(16386, 2, tcim::YUV420SP));
  REFUSED(resizer.Run(wide, result, whole), refused);
  for (size_t i = 0; i < 36; ++i) EXPECT(static_cast<uint8_t*>(result.Data())[i] == 77);
  EXPECT(resizer.GetInputTensor(0).Data() == nullptr);

  EXPECT(resizer.Run(image, result, whole) == tcim::OK && static_cast<uint8_t*>(result.Data())[0] == 0);
  EXPECT(check_runner(resizer, image, result) == 0);
  EXPECT(resizer.Run(result, result, whole) == tcim::OK);  // in place
  Resizer copy(resizer), moved(std::move(resizer));
  EXPECT(copy.Run(image, result, whole) == tcim::OK && moved.Run(image, result, whole) == tcim::OK);
  EXPECT(resizer.Run(image, result, whole) == tcim::UNINITIALIZED && resizer.Sync() == tcim::OK);
  resizer = moved;
  EXPECT(resizer.Run(image, result, whole) == tcim::OK);
  return 0;
}

int check_converter() {
  const auto refused = tcim::INVALID_ARGUMENT;
  const TensorInfo planes = TensorInfo::CreateNDInfo({1, 3, 4, 6}, tcim::UINT8);
  Tensor image = Tensor::CreateHostTensor(TensorInfo::CreateYUVInfo(6, 4, tcim::YUV422SP)), empty;
  Tensor result = Tensor::CreateHostTensor(planes), floats = Tensor::CreateHostTensor(planes.AsType(tcim::FLOAT16));
  Tensor small = Tensor::CreateHostTensor(TensorInfo::CreateNDInfo({1, 3, 4, 4}, tcim::UINT8));
  ColorConverter converter;
  REFUSED(converter.Run(image, result), tcim::UNINITIALIZED);
  REFUSED(converter.Init(tcim::ND), refused);
  EXPECT(converter.Init(ColorConverter::Option(tcim::YUV422SP, 0).SetMaxSize(6, 3)) == tcim::OK);
  REFUSED(converter.Run(image, result), refused);
  EXPECT(converter.Init() == tcim::OK);
  REFUSED(converter.Run(result, result), refused);
  REFUSED(converter.Run(empty, result), tcim::UNINITIALIZED);
  REFUSED(converter.Run(image, floats), refused);
  REFUSED(converter.Run(image, small), refused);
  REFUSED(converter.Run(image, image), refused);
  EXPECT(converter.Run(image, result, true) == tcim::OK);
  EXPECT(static_cast<uint8_t*>(result.Data())[24] == 135);  // Y, U and V of 0 are green
  // Into a part of a wider tensor.
  Tensor wide = Tensor::CreateHostTensor(TensorInfo::CreateNDInfo({1, 3, 4, 8}, tcim::UINT8));
  Tensor part = wide.SelectROI({0, 0, 0, 1}, {1, 3, 4, 6});
  EXPECT(converter.Run(image, part) == tcim::OK);
  const auto* bytes = static_cast<const uint8_t*>(wide.Data());
  EXPECT(bytes[32] == 0 && bytes[33] == 135 && bytes[38] == 135 && bytes[39] == 0);
  EXPECT(converter.Run(image, result) == tcim::OK);
  return check_runner(converter, image, result);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "resize" || mode == "colours") return work(argc, argv);
  EXPECT(mode == "api");
  return check_config() + check_resizer() + check_converter();
}
