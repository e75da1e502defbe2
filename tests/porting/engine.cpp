// Greedy chat turns the way the vendor's engine in C++ drives a package, hybrid models included: statuses become
// exceptions, inputs are host tensors filled through their buffers, logits leave through GetDevOutput.
//
// engine PREFILL DECODE EMBEDDING DEVICES NEW_TOKENS PROMPT..., each prompt a list of ids with commas. Prints a line of
// ids for each. Between prompts the states of linear attention are set to zeros from the host.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tcim/tcim_runtime.h"

using float16 = uint16_t;  // its bits
using Modules = std::vector<std::shared_ptr<tcim::Module>>;

inline void check(const tcim::Status& status, int line) {
  if (status == tcim::Status::OK) return;
  std::ostringstream text;
  text << "status " << static_cast<int>(status) << " at line " << line;
  throw std::runtime_error(text.str());
}
#define CHECK(call) check(call, __LINE__)

static bool contains(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }
static bool is_cache(const std::string& name) { return contains(name, "model_layers"); }

// The output that goes on with a state, "" for what is none.
static std::string output_of(const std::string& input) {
  for (const char* kind : {"conv_cache", "recurrent_state"}) {
    const std::string prefix = std::string("past_") + kind + "_";
    if (input.rfind(prefix, 0) == 0) return std::string(kind) + "_out_" + input.substr(prefix.size());
  }
  return "";
}

class Engine {
 public:
  Engine(const std::string& prefill, const std::string& decode, const std::string& embedding, int devices) {
    std::vector<int> ids(devices);
    std::iota(ids.begin(), ids.end(), 0);
    manager_ = std::make_unique<tcim::DevManager>(tcim::DevManager::Create(ids));
    weights_ =
        std::make_unique<tcim::Module::WeightManager>(tcim::Module::WeightManager::CreateWeightManager(*manager_));
    auto option = tcim::Module::Option(*weights_);
    option.EnableIOLazyMode(true);
    option.EnableHostLazyLoading(false);
    std::vector<std::string> dummies;
    for (const std::string& path : {prefill, decode}) {
      auto module = std::make_shared<tcim::Module>();
      CHECK(module->LoadModel(path, option));
      for (int i = 0; modules_.empty() && i < module->GetInputNum(); ++i) {
        const std::string name = module->GetInputName(i);
        if (is_cache(name)) dummies.push_back(name);
        if (is_cache(name) && first_cache_ == 0) first_cache_ = i;
      }
      dummies.push_back("model_layers_99_self_attn_kcache_input");  // layers are counted generously
      option.SetDummyTensors(dummies);
      modules_.push_back(module);
    }
    chunk_ = modules_[0]->GetInputInfo(modules_[0]->GetInputName(0)).Shape()[1];
    hidden_ = modules_[0]->GetInputInfo(modules_[0]->GetInputName(0)).Shape()[2];
    share();
    for (auto& module : modules_) {
      inputs_.emplace_back();
      for (int i = 0; i < first_cache_; ++i) {
        const auto name = module->GetInputName(i);
        inputs_.back()[name] = tcim::Tensor::CreateHostTensor(module->GetInputInfo(name).AsContiguous());
      }
    }
    std::ifstream file(embedding, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    embedding_.resize(bytes.size() / sizeof(float16));
    std::memcpy(embedding_.data(), bytes.data(), bytes.size());
  }

  std::vector<int> answer(const std::vector<int>& prompt, int count) {
    reset();
    for (size_t start = 0; start < prompt.size(); start += chunk_) {
      const size_t end = std::min(prompt.size(), start + chunk_);
      run(0, {prompt.begin() + start, prompt.begin() + end}, chunk_);
    }
    std::vector<int> ids = {best(0)};
    while (int(ids.size()) < count) {
      run(1, {ids.back()}, 1);
      ids.push_back(best(1));
    }
    return ids;
  }

 private:
  // Caches are prefill's. So are states, which both modules write in place.
  void share() {
    for (int i = 0; i < modules_[0]->GetInputNum(); ++i) {
      const std::string name = modules_[0]->GetInputName(i), output = output_of(name);
      if (!is_cache(name) && output.empty()) continue;
      auto tensor = modules_[0]->GetDevInput(name);
      CHECK(modules_[1]->SetDevInput(name, tensor));
      for (size_t m = 0; !output.empty() && m < modules_.size(); ++m) CHECK(modules_[m]->SetDevOutput(output, tensor));
    }
  }

  void reset() {
    length_ = 0;
    for (auto& module : modules_) {
      for (int i = 0; i < module->GetInputNum(); ++i) {
        const auto name = module->GetInputName(i);
        if (output_of(name).empty()) continue;
        auto host = tcim::Tensor::CreateHostTensor(module->GetInputInfo(name).AsContiguous());
        memset(host.Buffer().Data(), 0, host.MemSize());
        CHECK(module->SetInput(name, host));
      }
    }
  }

  void run(int which, const std::vector<int>& ids, int rows) {
    const int32_t current = int32_t(ids.size());
    std::vector<float16> embedded(size_t(rows) * hidden_), mask(rows);
    std::vector<int32_t> positions(rows);
    for (int row = 0; row < rows; ++row) {
      positions[row] = length_ + std::min(row, current - 1);
      if (row >= current) continue;
      mask[row] = 0x3C00;  // 1
      std::copy_n(embedding_.begin() + size_t(ids[row]) * hidden_, hidden_, embedded.begin() + size_t(row) * hidden_);
    }
    for (auto& [name, tensor] : inputs_[which]) {
      const size_t size = tensor.MemSize();
      const void* data = contains(name, "position_ids")     ? static_cast<const void*>(positions.data())
                         : contains(name, "valid_length")   ? &length_
                         : contains(name, "current_length") ? &current
                         : contains(name, "attn_mask")      ? static_cast<const void*>(mask.data())
                                                            : embedded.data();
      CHECK(tensor.Buffer().CopyFromHost(data, size));
      CHECK(modules_[which]->SetInput(name, tensor));
    }
    CHECK(modules_[which]->Run());
    CHECK(modules_[which]->Sync());
    length_ += current;
  }

  int best(int which) {
    auto host = modules_[which]->GetDevOutput(modules_[which]->GetOutputName(0)).ToHost(true);
    auto floats = host.AsType(tcim::DataType::FLOAT32);
    const float* logits = static_cast<float*>(floats.Buffer().Data());
    return int(std::max_element(logits, logits + floats.MemSize() / sizeof(float)) - logits);
  }

  std::unique_ptr<tcim::DevManager> manager_;
  std::unique_ptr<tcim::Module::WeightManager> weights_;
  Modules modules_;
  std::vector<std::map<std::string, tcim::Tensor>> inputs_;
  std::vector<float16> embedding_;
  int first_cache_ = 0, chunk_ = 0, hidden_ = 0;
  int32_t length_ = 0;
};

int main(int argc, char** argv) {
  try {
    Engine engine(argv[1], argv[2], argv[3], std::atoi(argv[4]));
    for (int i = 6; i < argc; ++i) {
      std::vector<int> prompt;
      std::istringstream text(argv[i]);
      for (std::string part; std::getline(text, part, ',');) prompt.push_back(std::stoi(part));
      for (const int id : engine.answer(prompt, std::atoi(argv[5]))) std::cout << id << " ";
      std::cout << std::endl;
    }
  } catch (const std::exception& error) {
    std::cout << "caught " << error.what() << std::endl;
  }
}
