#include "package.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

namespace {

tcim::Module Load(const std::string& path, const tcim::Module::Option& option) {
  auto module = tcim::Module::LoadFromFile(path, option);
  if (!module) throw std::runtime_error("cannot load " + path);
  return module;
}

tcim::Module LoadDecode(const std::string& path, const tcim::Module::WeightManager& weights, tcim::Module& prefill) {
  // Declared as dummies, decode's caches get no memory of their own ...
  const std::vector<std::string> caches = CacheNames(prefill);
  for (const auto& name : caches) {
    if (name.rfind("past_conv_cache", 0) != 0) continue;
    throw std::runtime_error(path + " takes " + name + ", a state that every run hands to the next, and this program " +
                             "hands on KV caches only; use tcim-lite chat, or a model without such layers");
  }
  tcim::Module::Option option(weights);
  option.SetDummyTensors(caches);
  tcim::Module decode = Load(path, option);
  // ... because they are prefill's: from here on both graphs read and write the same memory.
  for (const auto& name : caches) Check(decode.SetInput(name, prefill.GetInput(name)), "binding " + name);
  return decode;
}

// Which the shape of a mask does not say.
int64_t WindowOf(const tcim::Module& module) {
  const std::string message = module.GetCustomMsg(), key = "\"sliding_window\":";
  const auto at = message.find(key);
  if (at == std::string::npos) throw std::runtime_error("custom_msg has no sliding_window; compile with --masks");
  return std::stoll(message.substr(at + key.size()));
}

bool IsMask(const tcim::Module& module, int input) {
  return module.GetInputName(input).find("attention_mask") != std::string::npos;
}

}  // namespace

std::vector<std::string> CacheNames(const tcim::Module& module) {
  std::vector<std::string> names;
  int first = TakesPositions(module) ? 4 : 3;
  while (IsMask(module, first)) ++first;
  for (int i = first; i < module.GetInputNum(); ++i) names.push_back(module.GetInputName(i));
  return names;
}

bool TakesPositions(const tcim::Module& module) {
  return module.GetInputInfo(module.GetInputName(3)).Shape().size() == 2;
}

void SetPositions(tcim::Module& module, int64_t start) {
  if (!TakesPositions(module)) return;
  const std::string name = module.GetInputName(3);
  const auto info = module.GetInputInfo(name);
  std::vector<int32_t> positions(size_t(info.Shape()[1]));
  std::iota(positions.begin(), positions.end(), int32_t(start));
  const auto tensor = tcim::Tensor::CreateHostTensor(info, positions.size() * sizeof(int32_t), positions.data());
  Check(module.SetInput(name, tensor), "setting " + name);
}

bool TakesMasks(const tcim::Module& module) { return IsMask(module, 3); }

void SetMasks(tcim::Module& module, int64_t start, int64_t count) {
  if (!TakesMasks(module)) return;
  constexpr uint16_t kSeen = 0, kHidden = 0xFBFF;  // fp16 0 and -65504, added to the scores
  for (int input = 3; IsMask(module, input); ++input) {
    const std::string name = module.GetInputName(input);
    const auto info = module.GetInputInfo(name);
    const int64_t tokens = info.Shape()[2], columns = info.Shape()[3];
    const int64_t window = name.rfind("global", 0) == 0 ? columns : WindowOf(module);
    // The first column of a window's mask is the first row of the cache that the run's first token sees.
    const int64_t before = std::min(start, window - 1);
    std::vector<uint16_t> mask(size_t(tokens * columns), kHidden);
    for (int64_t token = 0; token < count; ++token) {
      const int64_t end = std::min(before + token + 1, columns), begin = std::max<int64_t>(end - window, 0);
      std::fill(&mask[size_t(token * columns + begin)], &mask[size_t(token * columns)] + end, kSeen);
    }
    const auto tensor = tcim::Tensor::CreateHostTensor(info, mask.size() * sizeof(uint16_t), mask.data());
    Check(module.SetInput(name, tensor), "setting " + name);
  }
}

Embedding::Embedding(const std::string& path, int64_t vocabulary, int64_t hidden)
    : file_(path, std::ios::binary | std::ios::ate), vocabulary_(vocabulary), row_bytes_(hidden * 2) {
  if (!file_ || file_.tellg() != vocabulary_ * row_bytes_) {
    throw std::runtime_error(path + ": expected [" + std::to_string(vocabulary) + ", " + std::to_string(hidden) +
                             "] fp16");
  }
}

void Embedding::Row(int token, void* target) {
  if (token < 0 || token >= vocabulary_) throw std::runtime_error("no token " + std::to_string(token));
  file_.seekg(token * row_bytes_);
  if (!file_.read(static_cast<char*>(target), row_bytes_)) throw std::runtime_error("the embedding cannot be read");
}

std::string PackageName(const std::string& folder) {
  const std::string suffix = "_prefill.hmm";
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    const auto length = file.size() - std::min(file.size(), suffix.size());
    if (length > 0 && file.substr(length) == suffix) names.push_back(file.substr(0, length));
  }
  if (names.size() != 1) {
    throw std::runtime_error(folder + " holds " + std::to_string(names.size()) +
                             " packages, expected one; make one with tcim-lite compile");
  }
  return names[0];
}

Package::Package(const std::string& folder, const std::string& name)
    : weights(tcim::Module::WeightManager::CreateWeightManager(0)),
      prefill(Load(folder + "/" + name + "_prefill.hmm", tcim::Module::Option(weights))),
      decode(LoadDecode(folder + "/" + name + "_decode.hmm", weights, prefill)),
      prefill_length(prefill.GetInputInfo(prefill.GetInputName(0)).Shape()[1]),
      context_length(prefill.GetInputInfo(CacheNames(prefill).front()).Shape()[2]),
      hidden(prefill.GetInputInfo(prefill.GetInputName(0)).Shape()[2]),
      vocabulary(prefill.GetOutputInfo(prefill.GetOutputName(0)).Shape().back()),
      embedding(folder + "/hmquant/quant_embedding.bin", vocabulary, hidden) {}

int Argmax(const float* values, int64_t count) { return int(std::max_element(values, values + count) - values); }
