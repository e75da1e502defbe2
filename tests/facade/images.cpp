// Image inputs as the vendor's programs use them: its image helper copies a smaller picture into the resizer's input
// plane by plane, its performance tool reads the sizes of the crop from the shapes. Prints the output's numbers.
//
//   images picture|whole MODEL BYTES HEIGHT WIDTH      BYTES: a file with the picture
#include <tcim/tcim_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "expect.h"

int main(int argc, char** argv) {
  EXPECT(argc == 6);
  const std::string how = argv[1];
  const int height = std::atoi(argv[4]), width = std::atoi(argv[5]);
  std::ifstream file(argv[3], std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());

  tcim::Module module = tcim::Module::LoadFromFile(argv[2]);
  EXPECT(module.GetInitStatus() == tcim::Status::OK);
  const std::string name = module.GetInputName(0);
  const tcim::TensorInfo info = module.GetInputInfo(name).AsContiguous();
  std::cerr << info << std::endl;
  const auto& shape = info.Shape();
  EXPECT(shape.size() == 4);
  EXPECT(info.Format() == tcim::DataFmt::YUV420SP);
  EXPECT(info.MemSize() == size_t(shape[0] * shape[2] * shape[3] * 3 / 2));

  // y, x, h, w of the part, what it becomes, and no border: the output has the size that the network reads.
  const auto output = module.GetOutputInfo(module.GetOutputName(0)).Shape();
  const int32_t rows = how == "whole" ? int32_t(shape[2]) : height,
                columns = how == "whole" ? int32_t(shape[3]) : width;
  int32_t crop[10] = {0, 0, rows, columns, int32_t(output[2]), int32_t(output[3]), 0, 0, 0, 0};
  const tcim::TensorInfo crop_info = module.GetInputInfo("resizer_crop_" + name);
  EXPECT(crop_info.MemSize() == sizeof(crop));
  EXPECT(module.SetInput("resizer_crop_" + name, tcim::Tensor::CreateHostTensor(crop_info, sizeof(crop), crop)) ==
         tcim::Status::OK);

  if (how == "whole") {
    const tcim::Tensor input = tcim::Tensor::CreateHostTensor(info);
    EXPECT(input.MemSize() == bytes.size());
    std::copy(bytes.begin(), bytes.end(), static_cast<char*>(input.Data()));
    EXPECT(module.SetInput(name, input) == tcim::Status::OK);
  } else {
    const tcim::TensorInfo picture_info = tcim::TensorInfo::CreateYUVInfo(1, width, height, info.Format());
    EXPECT(picture_info.Shape().size() == 4 && picture_info.Shape()[2] == height && picture_info.Shape()[3] == width);
    EXPECT(picture_info.MemSize() == bytes.size());
    const tcim::Tensor picture = tcim::Tensor::CreateHostTensor(picture_info, bytes.size(), bytes.data());
    const tcim::Tensor input = tcim::Tensor::CreateDeviceTensor(info, info.MemSize());
    tcim::Tensor y, uv, input_y, input_uv;
    EXPECT(picture.SplitYUV(y, uv) == tcim::Status::OK && input.SplitYUV(input_y, input_uv) == tcim::Status::OK);
    auto place_y = input_y.SelectROI({0, 0, 0}, y.Info().Shape());
    auto place_uv = input_uv.SelectROI({0, 0, 0, 0}, uv.Info().Shape());
    EXPECT(y.CopyTo(place_y) == tcim::Status::OK && uv.CopyTo(place_uv) == tcim::Status::OK);
    EXPECT(module.SetInput(name, input) == tcim::Status::OK);
  }
  EXPECT(module.Run(true) == tcim::Status::OK);
  tcim::Tensor result = module.GetOutput(module.GetOutputName(0));
  const auto* numbers = static_cast<const float*>(result.Data());
  std::cout.precision(9);
  for (size_t i = 0; i < result.MemSize() / sizeof(float); ++i) std::cout << numbers[i] << " ";
  std::cout << std::endl;
  return 0;
}
