// Sounds the way the vendor's engine in C++ drives their packages: host tensors filled through their buffers by the
// names of inputs, outputs of an encoder cast into other host tensors.
//
// transcribe words ENCODE PREFILL DECODE FEATURES STEPS ID...: greedy tokens of Whisper after a prompt of these ids,
//     whose caches and sounds decode takes over from prefill.
// transcribe rows ENCODE FEATURES OUT: what an encoder makes of float32 features, as the bytes that it gives.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tcim/tcim_runtime.h"

using float16 = _Float16;

static void check(const tcim::Status& status, int line) {
  if (status == tcim::Status::OK) return;
  std::ostringstream text;
  text << "status " << static_cast<int>(status) << " at line " << line;
  throw std::runtime_error(text.str());
}
#define CHECK(call) check(call, __LINE__)

static bool contains(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

static std::vector<float> read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

static tcim::Tensor host_input(tcim::Module& module, const std::string& name) {
  return tcim::Tensor::CreateHostTensor(module.GetInputInfo(name).AsContiguous());
}

class Words {
 public:
  Words(const char* encode, const char* prefill, const char* decode) {
    const auto manager = tcim::DevManager::Create({0});
    auto weights = tcim::Module::WeightManager::CreateWeightManager(manager);
    for (auto [module, path] : {std::pair{&encode_, encode}, {&prefill_, prefill}, {&decode_, decode}}) {
      auto option = tcim::Module::Option(weights);
      option.EnableIOLazyMode(true);
      CHECK(module->LoadModel(path, option));
    }
    int caches = 0;
    for (int i = 0; i < prefill_.GetInputNum(); ++i) {
      const std::string name = prefill_.GetInputName(i);
      if (!contains(name, "k_cache") && !contains(name, "v_cache")) continue;
      if (caches++ == 0) first_cache_ = i;
    }
    layers_ = caches / 2;
    const auto mask = prefill_.GetInputInfo(prefill_.GetInputName(4)).Shape();
    heads_ = int(mask[1]), context_ = int(mask[3]);
    for (int i = 0; i < caches; ++i) {
      const std::string name = decode_.GetInputName(first_cache_ + i);
      CHECK(prefill_.SetDevInput(name, decode_.GetDevInput(name)));
    }
  }

  std::vector<int> write(const std::vector<float>& features, const std::vector<int>& prompt, int steps) {
    hear(features);
    run(decode_, {prompt[0]}, 0, true);  // the language; what it is does not matter here
    run(prefill_, prompt, 0, true);
    take_over();
    std::vector<int> tokens = prompt;
    tokens.push_back(best(prefill_, int(prompt.size()) - 1));
    while (--steps >= 0) {
      run(decode_, {tokens.back()}, int(tokens.size()) - 1, false);
      tokens.push_back(best(decode_, 0));
    }
    return tokens;
  }

 private:
  // The first half of the encoder's outputs are keys, the others are values: in the order of the decoder's inputs.
  void hear(const std::vector<float>& features) {
    const std::string name = encode_.GetInputName(0);
    const std::vector<float16> halves(features.begin(), features.end());
    auto input = host_input(encode_, name);
    CHECK(input.Buffer().CopyFromHost(halves.data(), input.MemSize()));
    CHECK(encode_.SetInput(name, input));
    CHECK(encode_.Run());
    CHECK(encode_.Sync());
    sounds_.clear();
    for (int i = 0; i < encode_.GetOutputNum(); ++i) {
      sounds_.push_back(host_input(decode_, decode_.GetInputName(first_cache_ + 2 * layers_ + i)));
      CHECK(encode_.GetOutput(encode_.GetOutputName(i)).CastTo(sounds_.back()));
    }
  }

  void run(tcim::Module& module, const std::vector<int>& tokens, int position, bool with_sounds) {
    const int count = int(tokens.size());
    for (int i = 0; i < first_cache_; ++i) {
      const std::string name = module.GetInputName(i);
      auto tensor = host_input(module, name);
      std::vector<int> numbers;
      if (contains(name, "input_ids")) numbers = tokens;
      if (contains(name, "past_len")) numbers = {position};
      if (contains(name, "current_len")) numbers = {count};
      if (contains(name, "cache_position"))
        for (int t = 0; t < count; ++t) numbers.push_back(position + t);
      std::vector<float16> halves(tensor.MemSize() / sizeof(float16), float16(0));
      if (contains(name, "mask_attn"))
        for (int row = 0; row < heads_ * count; ++row)
          for (int c = position + row % count + 1; c < context_; ++c) halves[row * context_ + c] = float16(-65504);
      const void* data = numbers.empty() ? static_cast<const void*>(halves.data()) : numbers.data();
      CHECK(tensor.Buffer().CopyFromHost(data, tensor.MemSize()));
      CHECK(module.SetInput(name, tensor));
    }
    for (int i = 0; with_sounds && i < 2 * layers_; ++i)
      CHECK(module.SetInput(module.GetInputName(first_cache_ + 2 * layers_ + i), sounds_[i]));
    CHECK(module.Run());
    CHECK(module.Sync());
  }

  void take_over() {
    for (int i = 0; i < 2 * layers_; ++i) {
      auto cache = prefill_.GetDevOutput(prefill_.GetOutputName(i + 1));
      CHECK(decode_.SetDevInput(decode_.GetInputName(first_cache_ + i), cache));
      CHECK(decode_.SetDevOutput(decode_.GetOutputName(i + 1), cache));
      const int sound = first_cache_ + 2 * layers_ + i;
      CHECK(decode_.SetDevInput(decode_.GetInputName(sound), prefill_.GetDevInput(prefill_.GetInputName(sound))));
    }
  }

  int best(tcim::Module& module, int row) {
    const std::string name = module.GetOutputName(0);
    auto host = module.GetDevOutput(name).ToHost(true);
    const auto width = module.GetOutputInfo(name).Shape()[2];
    const auto* logits = static_cast<const float16*>(host.Buffer().Data()) + row * width;
    return int(std::max_element(logits, logits + width) - logits);
  }

  tcim::Module encode_, prefill_, decode_;
  std::vector<tcim::Tensor> sounds_;
  int first_cache_ = 0, layers_ = 0, heads_ = 0, context_ = 0;
};

static void write_rows(char** argv) {
  auto weights = tcim::Module::WeightManager::CreateWeightManager(tcim::DevManager::Create({0}));
  tcim::Module encode;
  CHECK(encode.LoadModel(argv[2], tcim::Module::Option(weights)));
  const auto features = read(argv[3]);
  const std::string name = encode.GetInputName(0);
  auto input = host_input(encode, name);
  CHECK(input.Buffer().CopyFromHost(features.data(), features.size() * sizeof(float)));
  CHECK(encode.SetInput(name, input));
  CHECK(encode.Run());
  CHECK(encode.Sync());
  const std::string rows = encode.GetOutputName(0);
  auto out = tcim::Tensor::CreateHostTensor(encode.GetOutputInfo(rows).AsContiguous());
  CHECK(encode.GetOutput(rows).CastTo(out));
  std::ofstream(argv[4], std::ios::binary).write(static_cast<const char*>(out.Buffer().Data()), out.MemSize());
}

int main(int argc, char** argv) {
  try {
    if (std::string(argv[1]) == "rows") {
      write_rows(argv);
      return 0;
    }
    std::vector<int> prompt;
    for (int i = 7; i < argc; ++i) prompt.push_back(std::stoi(argv[i]));
    for (const int token : Words(argv[2], argv[3], argv[4]).write(read(argv[5]), prompt, std::stoi(argv[6])))
      std::cout << token << " ";
    std::cout << std::endl;
  } catch (const std::exception& error) {
    std::cout << "caught " << error.what() << std::endl;
    return 1;
  }
}
