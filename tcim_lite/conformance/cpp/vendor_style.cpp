// Code as people write it for the card (C-24): built with -w -O2, with and without GNU extensions. It relies on what
// the vendor's header brings along (sstream, stdexcept, map), on unscoped enumerations and on status codes as ints.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <queue>

#include "tcim/tcim_runtime.h"

#define EXPECT(x)                          \
  if (!(x)) {                              \
    printf("line %d: %s\n", __LINE__, #x); \
    exit(1);                               \
  }

inline void CheckStatus(const tcim::Status& status, int line) {
  if (status != tcim::Status::OK) {
    std::ostringstream text;
    text << "line " << line << ": status " << static_cast<int>(status) << " / " << status;
    throw std::runtime_error(text.str());
  }
}
#define CHECK_STATUS(x) CheckStatus(x, __LINE__)

// A tensor with something added, made through the base's factories; members named like types.
class FrameTensor : public tcim::Tensor {
 public:
  FrameTensor() = default;
  ~FrameTensor() = default;
  FrameTensor(const FrameTensor& other) = default;
  FrameTensor(FrameTensor&& other) = default;
  FrameTensor& operator=(const FrameTensor& other) = default;
  FrameTensor& operator=(FrameTensor&& other) = default;
  explicit FrameTensor(tcim::Tensor&& base) noexcept : tcim::Tensor(std::move(base)) {}
  FrameTensor(const tcim::TensorInfo& info, const tcim::Buffer& buffer) : tcim::Tensor(info, buffer) {}
  static FrameTensor CreateHostTensor(const tcim::TensorInfo& info, size_t mem_size = 0, void* ptr = nullptr) {
    tcim::Tensor base = tcim::Tensor::CreateHostTensor(info, mem_size, ptr);
    return FrameTensor(std::move(base));
  }
  tcim::DataFmt Format() const { return Info().Format(); }
  int timestamp = 0;
};

class Detector : public tcim::Module {
 public:
  using tcim::Module::Run;
  Detector() : tcim::Module() {}
  explicit Detector(const tcim::Module& module) : tcim::Module(module) {}
  Detector(Detector&& module) : tcim::Module(std::move(module)) {}
  Detector(const std::string& path, const Option& option = Option()) : tcim::Module(path, option) {}
  static Detector LoadFromFile(const std::string& path, const Option& option = Option()) {
    tcim::Module module = tcim::Module::LoadFromFile(path, option);
    return Detector(module);
  }
  tcim::Status Run(FrameTensor& frame, bool sync) {
    int ret = SetInput("a", frame);
    if (ret != tcim::OK) return (tcim::Status)ret;
    return Run(sync);
  }
};

typedef struct Task {
  tcim::Module module;
  tcim::Module::RunOption option;
  std::shared_ptr<std::mutex> mutex;
  bool last = false;
  Task() : last(true) {}
  Task(tcim::Module& m, const tcim::Module::RunOption& o) : module(m), option(o) {
    mutex = std::make_shared<std::mutex>();
  }
} Task;

typedef struct {
  tcim::Device device;
  tcim::Module::WeightManager weights;
  std::unique_ptr<tcim::DevManager> devices;
  std::vector<tcim::Stream> streams;
  std::map<std::string, tcim::TensorInfo> infos;
  std::map<std::string, tcim::Tensor> tensors;
} Context;

// Kept on purpose: objects of the program's that end after main.
static tcim::Module g_module;
static tcim::Stream g_stream(tcim::kAutoYield);

int main(int argc, char** argv) {
  std::string path = argv[1];
  std::cout << tcim::GetVersion() << std::endl;
  printf("devices: %ld\n", tcim::GetDeviceNum());
  for (int i = 0; i < tcim::GetDeviceNum("Xh2HalBackend"); i++) std::cout << i << std::endl;

  Context context;
  context.device = tcim::Device();
  EXPECT(context.device == tcim::CPU && (int)tcim::Device::HDPL == tcim::HDPL);
  std::vector<int> ids;
  ids.emplace_back(0);
  context.devices = std::make_unique<tcim::DevManager>(tcim::DevManager::Create(ids));
  context.devices.reset(new tcim::DevManager(tcim::DevManager::Create(0, "Xh2HalBackend")));
  context.weights = tcim::Module::WeightManager::CreateWeightManager(*context.devices);
  if (context.weights.GetInitStatus() != tcim::Status::OK) return -1;
  auto option = tcim::Module::Option(context.weights);
  option.SetDummyTensors({});
  option.EnableHostLazyLoading(true);
  option.EnableIOLazyMode(true);
  option.RegisterAbortCbFn([&]() { return false; });

  // Loading: a shared pointer, a copy in a vector, a subclass.
  auto shared = std::make_shared<tcim::Module>();
  CHECK_STATUS(shared->LoadModel(path, option));
  std::vector<tcim::Module> modules;
  modules.push_back(*shared);
  modules.push_back(std::move(tcim::Module::LoadFromFile(path.c_str(), option)));
  Detector detector = Detector::LoadFromFile(path);
  Detector second(path, tcim::Module::Option(0));
  g_module = second;
  if (!modules[1] || !detector || !g_module) return -1;
  auto missing = tcim::Module::LoadFromFile(path + ".missing");
  if (missing) return -1;
  int status = missing.GetInitStatus();
  EXPECT(!missing && status != tcim::OK);
  FILE* file = fopen(path.c_str(), "rb");
  fseek(file, 0, SEEK_END);
  int len = ftell(file);
  rewind(file);
  char* data = (char*)malloc(len);
  EXPECT(fread(data, 1, len, file) == len);
  fclose(file);
  auto from_memory = tcim::Module::LoadFromMem((void*)data, len);
  EXPECT(from_memory);
  tcim::Module in_place;
  int ret = in_place.LoadModel(data, len, option);
  EXPECT(ret == 0);
  free(data);

  // Infos and inputs.
  const tcim::Module& module = modules[0];
  size_t inputs = module.GetInputNum();
  int outputs = module.GetOutputNum();
  for (int idx = 0; idx < inputs; idx++) {
    auto name = module.GetInputName(idx);
    auto info = module.GetInputInfo(name).AsContiguous();
    std::cout << "Input[" << name << "] " << info << std::endl;
    context.infos[name] = info;
    context.tensors.insert(std::pair<std::string, tcim::Tensor>(name, tcim::Tensor::CreateHostTensor(info)));
    auto info_f32 = info.AsType(tcim::DataType::FLOAT32);
    auto wide = tcim::Tensor::CreateHostTensor(info_f32);
    if (info.DataType() != tcim::DataType::FLOAT16) continue;
    auto& shape = wide.Info().Shape();
    int64_t count = 1;
    for (auto extent : shape) count *= extent;
    for (int64_t i = 0; i < count; i++) ((float*)wide.Data())[i] = i;
    CHECK_STATUS(wide.CastTo(context.tensors[name]));
    CHECK_STATUS(modules[0].SetInput(name, context.tensors[name]));
  }
  std::vector<int64_t> shape = context.infos["a"].Shape();
  EXPECT(shape.size() == 2 && shape[0] * shape[1] == 6);

  // Streams, runs.
  context.streams.resize(8);
  ret = modules[0].SetStream(context.streams[3]);
  EXPECT(ret == tcim::OK);
  g_module.SetStream(g_stream);
  std::queue<Task> tasks;
  tcim::Module::RunOption run_option;
  run_option.Rounds(2);
  tasks.push(Task(modules[0], run_option));
  tasks.push(Task());
  ret = tasks.front().module.Run(false, tasks.front().option);
  EXPECT(ret == 0);
  CHECK_STATUS(modules[0].Sync());

  // Outputs, arithmetic on addresses.
  std::string out = module.GetOutputName(outputs - 1);
  auto output = modules[0].GetOutput(out);
  auto info_f32 = output.Info().AsType(tcim::FLOAT32);
  auto output_f32 = tcim::Tensor::CreateHostTensor(info_f32);
  CHECK_STATUS(output.CastTo(output_f32));
#ifndef __clang__  // g++ takes arithmetic on void* under every -std with -w
  float third = *(float*)(output_f32.Data() + 3 * sizeof(float));
#else
  float third = ((float*)output_f32.Data())[3];
#endif
  EXPECT(third == 6);
  ret = modules[0].GetOutput(out, output_f32);
  EXPECT(ret == tcim::OK && ((float*)output_f32.Data())[5] == 10);
  auto device = tcim::Tensor::CreateDeviceTensor(module.GetOutputInfo(out));
  CHECK_STATUS(modules[0].SetOutput(out, device));
  CHECK_STATUS(modules[0].Run(true));
  if (device.Device() == tcim::HDPL) device = device.ToHost();
  EXPECT(memcmp(device.Data(), output.Data(), output.MemSize()) == 0);
  tcim::Tensor bound = modules[0].GetInput("b");
  if (tcim::GetVersion().rfind("v1.3.", 0) == 0) {  // refuses it there
    CHECK_STATUS(modules[1].SetDevInput("b", bound));
  } else {
    CHECK_STATUS(modules[1].SetInput("b", bound));
  }
  CHECK_STATUS(modules[1].SetDevInput("a", modules[0].GetDevInput("a")));
  CHECK_STATUS(modules[1].Run(true));
  EXPECT(memcmp(modules[1].GetOutput(out).Data(), output.Data(), output.MemSize()) == 0);

  // Subclasses, images.
  FrameTensor frame = FrameTensor::CreateHostTensor(context.infos["a"], context.infos["a"].MemSize());
  EXPECT(frame.GetInitStatus() == tcim::Status::OK && frame.Format() == tcim::ND);
  CHECK_STATUS(detector.Run(frame, true));
  auto yuv_info = tcim::TensorInfo::CreateYUVInfo(8, 4, tcim::YUV420SP);
  FrameTensor yuv(yuv_info, tcim::Buffer::CreateHostBuffer(yuv_info.MemSize())), y, uv;
  CHECK_STATUS(yuv.SplitYUV(y, uv));
  auto y_buf = tcim::Buffer::CreateHostBuffer(32);
  memset(y_buf.Data(), 7, y_buf.Size());
  y_buf.CopyTo(y.Buffer());
  EXPECT(((uint8_t*)yuv.Data())[31] == 7 && ((uint8_t*)yuv.Data())[32] == 0);
  auto roi = y.SelectROI({0, 0, 0}, {1, 2, 2});
  FrameTensor copied;
  copied = frame;
  CHECK_STATUS(frame.CopyTo(copied));

  // Left unfinished: ends with the program.
  g_module.Run();
  tcim::Module::WeightManager weights = context.weights;
  weights.~WeightManager();
  printf("%d\n", (int)tcim::INVALID_ARGUMENT);
  return 0;
}
