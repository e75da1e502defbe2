// How programs for several makes of chips feed a graph: all values are float32 on the host, converted by the tensor's
// own AsType(dtype, flag). argv[1] is a model that adds its two inputs, [2, 3] in float16.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "expect.h"
#include "tcim/tcim_dev_ctrl.h"
#include "tcim/tcim_runtime.h"

static void set(tcim::Module& module, const std::string& name, const std::vector<float>& values) {
  const tcim::TensorInfo info = module.GetInputInfo(name);
  EXPECT(info.DataType() == tcim::DataType::FLOAT16 && info.DataTypeSize() == 2);
  const tcim::TensorInfo floats = info.AsType(tcim::DataType::FLOAT32);
  EXPECT(floats.MemSize() == values.size() * floats.DataTypeSize());
  tcim::Tensor host = tcim::Tensor::CreateHostTensor(floats, floats.MemSize(), nullptr);
  std::memcpy(host.Data(), values.data(), floats.MemSize());
  const tcim::Tensor halves = host.AsType(info.DataType(), true);
  EXPECT(halves.GetInitStatus() == tcim::Status::OK && halves.MemSize() == floats.MemSize() / 2);
  EXPECT(module.SetInput(name, halves) == tcim::Status::OK);
}

static std::vector<float> get(tcim::Module& module, const std::string& name, bool flag) {
  const tcim::Tensor host = module.GetOutput(name).ToHost(true);
  const tcim::Tensor floats = host.AsType(tcim::DataType::FLOAT32, flag);
  EXPECT(floats.GetInitStatus() == tcim::Status::OK && floats.Data() != host.Data());
  EXPECT(floats.Info().Shape() == host.Info().Shape());
  std::vector<float> values(floats.MemSize() / floats.Info().DataTypeSize());
  std::memcpy(values.data(), floats.Data(), floats.MemSize());
  return values;
}

int main(int, char** argv) {
  const std::map<tcim::DataType, size_t> sizes{{tcim::INT8, 1},    {tcim::UINT8, 1},  {tcim::INT16, 2},
                                               {tcim::UINT16, 2},  {tcim::INT32, 4},  {tcim::UINT32, 4},
                                               {tcim::FLOAT16, 2}, {tcim::FLOAT32, 4}};
  for (const auto& [dtype, size] : sizes) {
    EXPECT(tcim::TensorInfo::CreateNDInfo({2, 3}, dtype).DataTypeSize() == size);
  }
  EXPECT(tcim::TensorInfo().DataTypeSize() == 0);
  EXPECT(tcim::Tensor().AsType(tcim::FLOAT32, true).GetInitStatus() != tcim::OK);

  tcim::Module::Option option(0);
  tcim::Module module = tcim::Module::LoadFromFile(argv[1], option);
  tcim::Stream stream;
  EXPECT(module.GetInitStatus() == tcim::OK && module.SetStream(stream) == tcim::OK);
  set(module, module.GetInputName(0), {1, 2, 3, 4, 5, 6});
  set(module, module.GetInputName(1), {10, 20, 30, 40, 50, 0.5});
  EXPECT(module.Run(true) == tcim::OK);
  const std::vector<float> expected{11, 22, 33, 44, 55, 6.5};
  EXPECT(get(module, module.GetOutputName(0), true) == expected);
  EXPECT(get(module, module.GetOutputName(0), false) == expected);

  // A view with strides becomes dense.
  tcim::Tensor wide = tcim::Tensor::CreateHostTensor(tcim::TensorInfo::CreateNDInfo({2, 3}, tcim::FLOAT32));
  const float numbers[] = {1, 2, 3, 4, 5, 6};
  std::memcpy(wide.Data(), numbers, sizeof(numbers));
  const tcim::Tensor column = wide.SelectROI({0, 1}, {2, 1}).AsType(tcim::INT32, true);
  EXPECT(column.MemSize() == 8 && static_cast<int32_t*>(column.Data())[1] == 5);

  // What such a program asks of a card.
  const auto device = tcim::dev_ctrl::HalDeviceFactory::Create("Xh2HalBackend");
  tcim::dev_ctrl::MemInfo memory{};
  uint64_t hertz = 0;
  EXPECT(device && device->GetMemInfo(0, &memory) == tcim::OK && memory.mem_total >= memory.mem_used);
  EXPECT(device->GetIpuFrequency(0, &hertz) == tcim::OK && hertz > 0);
}
