#include "generator.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace {

tcim::Tensor HostTensorFor(const tcim::Module& module) {
  return tcim::Tensor::CreateHostTensor(module.GetInputInfo(module.GetInputName(0)).AsContiguous());
}

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

Generator::Generator(Package& package)
    : package_(package), prefill_rows_(HostTensorFor(package.prefill)), decode_rows_(HostTensorFor(package.decode)) {
  const auto info = package.decode.GetOutputInfo(package.decode.GetOutputName(0));
  logits_ = tcim::Tensor::CreateHostTensor(info.AsContiguous().AsType(tcim::FLOAT32));
}

int Generator::Run(tcim::Module& module, const int* tokens, int64_t count, int64_t start) {
  tcim::Tensor& rows = &module == &package_.prefill ? prefill_rows_ : decode_rows_;
  // Rows beyond `count` are not read.
  for (int64_t i = 0; i < count; ++i) {
    package_.embedding.Row(tokens[i], static_cast<char*>(rows.Data()) + i * package_.hidden * 2);
  }
  Check(module.SetInput(module.GetInputName(0), rows), "setting the embeddings");
  // Host data is copied at call time, so these may live on the stack.
  int32_t lengths[2] = {int32_t(start), int32_t(count)};
  for (int i = 0; i < 2; ++i) {
    const std::string name = module.GetInputName(1 + i);
    const auto tensor = tcim::Tensor::CreateHostTensor(module.GetInputInfo(name), sizeof(int32_t), &lengths[i]);
    Check(module.SetInput(name, tensor), "setting " + name);
  }
  SetPositions(module, start);
  SetMasks(module, start, count);
  Check(module.Run(), "running");
  Check(module.Sync(), "running");
  Check(module.GetOutput(module.GetOutputName(0)).CastTo(logits_), "reading the logits");
  return Argmax(static_cast<float*>(logits_.Data()), package_.vocabulary);
}

Generator::Stats Generator::Generate(const std::vector<int>& prompt, int stop, int limit,
                                     const std::function<void(int)>& on_token) {
  if (prompt.empty() || int64_t(prompt.size()) > package_.context_length) {
    throw std::runtime_error("the prompt has " + std::to_string(prompt.size()) + " tokens, the context holds " +
                             std::to_string(package_.context_length));
  }
  Stats stats;
  stats.prompt_tokens = prompt.size();
  auto started = std::chrono::steady_clock::now();
  size_t done = 0;  // one token at least is left to run
  while (done < std::min(prompt.size() - 1, cached_.size()) && prompt[done] == cached_[done]) ++done;
  stats.cached_tokens = done;
  cached_ = prompt;
  int token = 0;
  for (size_t count; done < prompt.size(); done += count) {
    count = std::min(prompt.size() - done, size_t(package_.prefill_length));
    token = Run(package_.prefill, &prompt[done], int64_t(count), int64_t(done));
  }
  stats.prefill_s = Seconds(started);
  started = std::chrono::steady_clock::now();
  for (;;) {
    ++stats.new_tokens;
    stats.decode_s = Seconds(started);
    if (token == stop) return stats;
    on_token(token);
    if (int(stats.new_tokens) == limit || int64_t(cached_.size()) >= package_.context_length) return stats;
    cached_.push_back(token);
    token = Run(package_.decode, &cached_.back(), 1, int64_t(cached_.size()) - 1);
  }
}
