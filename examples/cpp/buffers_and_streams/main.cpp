// Several answers to one prompt at once: prefill runs once, then each branch decodes on its own module, stream and copy
// of the KV caches, beginning with another of the most likely tokens. Branch 0 is the greedy answer.
//
//   buffers_and_streams OUT [branches] [tokens]
//
// What it shows: one Option for several modules that share weights; device tensors, and copies between them; one host
// Buffer cut into a slice per branch; runs of different streams that overlap; outputs that go to given tensors.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>

#include "package.h"
#include "tokenizer.h"

namespace {

struct Branch {
  tcim::Module module;
  tcim::Stream stream;
  std::map<std::string, tcim::Tensor> caches;  // device
  tcim::Tensor row, length;                    // host, slices of one buffer: [1, 1, hidden] fp16; [1] int32
  tcim::Tensor logits;                         // device; the graph writes here
  tcim::Tensor host_logits;                    // FLOAT32
  std::vector<int> tokens;
};

void SetLength(tcim::Module& module, int index, int32_t value) {
  const std::string name = module.GetInputName(index);
  Check(module.SetInput(name, tcim::Tensor::CreateHostTensor(module.GetInputInfo(name), sizeof(value), &value)), name);
}

// Fills prefill's caches; returns the logits after the prompt, FLOAT32 on the host.
tcim::Tensor Prefill(Package& package, const std::vector<int>& prompt) {
  if (int64_t(prompt.size()) > package.prefill_length) throw std::runtime_error("the prompt is longer than a chunk");
  tcim::Module& module = package.prefill;
  const std::string input = module.GetInputName(0), output = module.GetOutputName(0);
  tcim::Tensor rows = tcim::Tensor::CreateHostTensor(module.GetInputInfo(input).AsContiguous());
  for (size_t i = 0; i < prompt.size(); ++i) {
    package.embedding.Row(prompt[i], static_cast<char*>(rows.Data()) + i * size_t(package.hidden) * 2);
  }
  Check(module.SetInput(input, rows), input);
  SetLength(module, 1, 0);
  SetLength(module, 2, int32_t(prompt.size()));
  SetMasks(module, 0, int64_t(prompt.size()));
  Check(module.Run(true), "prefill");
  return module.GetOutput(output).AsType(tcim::FLOAT32);
}

Branch MakeBranch(Package& package, const std::string& path, const tcim::Module::Option& option,
                  const tcim::Buffer& row, const tcim::Buffer& length) {
  Branch branch;
  Check(branch.module.LoadModel(path, option), path);
  Check(branch.module.SetStream(branch.stream), "SetStream");
  // A copy of prefill's caches, device to device; then bound by reference.
  for (const auto& name : CacheNames(branch.module)) {
    tcim::Tensor cache = tcim::Tensor::CreateDeviceTensor(branch.module.GetInputInfo(name));
    Check(package.prefill.GetInput(name).CopyTo(cache), "copying " + name);
    Check(branch.module.SetInput(name, cache), "binding " + name);
    branch.caches[name] = cache;
  }
  branch.row = tcim::Tensor(branch.module.GetInputInfo(branch.module.GetInputName(0)).AsContiguous(), row);
  branch.length = tcim::Tensor(branch.module.GetInputInfo(branch.module.GetInputName(1)).AsContiguous(), length);
  SetLength(branch.module, 2, 1);
  const std::string output = branch.module.GetOutputName(0);
  const auto info = branch.module.GetOutputInfo(output);
  branch.logits = tcim::Tensor::CreateDeviceTensor(info);
  Check(branch.module.SetOutput(output, branch.logits), "SetOutput");
  branch.host_logits = tcim::Tensor::CreateHostTensor(info.AsContiguous().AsType(tcim::FLOAT32));
  return branch;
}

void Decode(const std::string& folder, int count, int limit) {
  const Tokenizer tokenizer(folder + "/tokenizer/cpp_tokenizer.txt");
  const std::string name = PackageName(folder);
  Package package(folder, name);
  if (TakesPositions(package.decode)) throw std::runtime_error("compile the package without --position-ids");
  const auto prompt = tokenizer.Encode("<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n");
  const tcim::Tensor first = Prefill(package, prompt);
  const auto* scores = static_cast<const float*>(first.Data());
  std::vector<int> ranked(package.vocabulary);
  std::iota(ranked.begin(), ranked.end(), 0);
  std::partial_sort(ranked.begin(), ranked.begin() + count, ranked.end(),
                    [&](int a, int b) { return scores[a] > scores[b]; });

  // One allocation for what all branches send: a row and a length each, at multiples of 64 bytes.
  const size_t row_bytes = size_t(package.hidden) * 2, slice = (row_bytes + sizeof(int32_t) + 63) / 64 * 64;
  tcim::Buffer staging = tcim::Buffer::CreateHostBuffer(slice * count);
  tcim::Module::Option option(package.weights);
  option.SetDummyTensors(CacheNames(package.decode));
  std::vector<Branch> branches;
  for (int i = 0; i < count; ++i) {
    branches.push_back(MakeBranch(package, folder + "/" + name + "_decode.hmm", option,
                                  staging.GetSubBuffer(row_bytes, i * slice),
                                  staging.GetSubBuffer(sizeof(int32_t), i * slice + row_bytes)));
    branches.back().tokens.push_back(ranked[i]);
  }

  const int stop = tokenizer.Special("<|im_end|>");
  const auto ended = [&](const Branch& branch) {
    return branch.tokens.back() == stop || int(branch.tokens.size()) >= limit;
  };
  while (!std::all_of(branches.begin(), branches.end(), ended)) {
    for (Branch& branch : branches) {
      if (ended(branch)) continue;
      const auto length = int32_t(prompt.size() + branch.tokens.size() - 1);
      package.embedding.Row(branch.tokens.back(), branch.row.Data());
      Check(branch.length.Buffer().CopyFromHost(&length, sizeof(length)), "CopyFromHost");
      Check(branch.module.SetInput(branch.module.GetInputName(0), branch.row), "SetInput");
      Check(branch.module.SetInput(branch.module.GetInputName(1), branch.length), "SetInput");
      SetMasks(branch.module, length, 1);
      Check(branch.module.Run(), "Run");  // returns at once; the other branches' runs overlap
    }
    for (Branch& branch : branches) {
      if (ended(branch)) continue;
      Check(branch.module.Sync(), "Sync");
      Check(branch.logits.CastTo(branch.host_logits), "CastTo");
      branch.tokens.push_back(Argmax(static_cast<float*>(branch.host_logits.Data()), package.vocabulary));
    }
  }
  for (const Branch& branch : branches) {
    for (const int token : branch.tokens) std::cout << tokenizer.Bytes(token);
    std::cout << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int branches = argc > 2 ? std::atoi(argv[2]) : 4, tokens = argc > 3 ? std::atoi(argv[3]) : 24;
  if (argc < 2 || branches < 1 || branches > 64 || tokens < 1) {
    std::cerr << "usage: buffers_and_streams OUT [branches, 1 to 64] [tokens]" << std::endl;
    return 2;
  }
  try {
    Decode(argv[1], branches, tokens);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
}
