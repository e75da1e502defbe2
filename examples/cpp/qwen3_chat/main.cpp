// Chat with a compiled package through the C++ runtime API.
//
//   qwen3_chat OUT [--name NAME] [--question TEXT]... [--max-new-tokens N] [--ids] [--raw]
//
// Without --question it reads questions from standard input. --ids prints token ids instead of text. --raw gives the
// questions to the model without a chat template.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "generator.h"
#include "tokenizer.h"

namespace {

constexpr char kUsage[] =
    "usage: qwen3_chat OUT [--name NAME] [--question TEXT]... [--max-new-tokens N] [--ids] [--raw]";

struct Arguments {
  std::string folder, name;  // no name: the one package of the folder
  std::vector<std::string> questions;
  int max_new_tokens = 0;  // 0: until the answer ends
  bool ids = false;
  bool raw = false;
};

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--help") {
      std::cout << kUsage << std::endl;
      std::exit(0);
    } else if (word == "--name" && has_value) {
      arguments.name = argv[++i];
    } else if (word == "--question" && has_value) {
      arguments.questions.push_back(argv[++i]);
    } else if (word == "--max-new-tokens" && has_value) {
      arguments.max_new_tokens = std::atoi(argv[++i]);
    } else if (word == "--ids") {
      arguments.ids = true;
    } else if (word == "--raw") {
      arguments.raw = true;
    } else if (arguments.folder.empty() && word[0] != '-') {
      arguments.folder = word;
    } else {
      throw std::runtime_error("unknown argument " + word + "; " + kUsage);
    }
  }
  if (arguments.folder.empty()) throw std::runtime_error(kUsage);
  if (!std::filesystem::is_directory(arguments.folder)) {
    throw std::runtime_error("there is no folder " + arguments.folder + "; make one with tcim-lite compile");
  }
  return arguments;
}

void Chat(const Arguments& arguments) {
  const Tokenizer tokenizer(arguments.folder + "/tokenizer/cpp_tokenizer.txt");
  const int stop = tokenizer.Special("<|im_end|>");
  const std::string name = arguments.name.empty() ? PackageName(arguments.folder) : arguments.name;
  Package package(arguments.folder, name);
  Generator generator(package);
  std::cout << name << ": context " << package.context_length << " tokens, runtime "
            << tcim::GetVersion().substr(0, tcim::GetVersion().find('\n')) << std::endl;

  std::string conversation;
  for (size_t turn = 0;; ++turn) {
    std::string question;
    if (turn < arguments.questions.size()) {
      question = arguments.questions[turn];
    } else if (!arguments.questions.empty() || !std::getline(std::cin, question)) {
      return;
    }
    std::cout << "> " << question << std::endl;
    conversation += arguments.raw ? question : "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n";
    const auto stats =
        generator.Generate(tokenizer.Encode(conversation), stop, arguments.max_new_tokens, [&](int token) {
          conversation += tokenizer.Bytes(token);
          std::cout << (arguments.ids ? std::to_string(token) + " " : tokenizer.Bytes(token)) << std::flush;
        });
    if (!arguments.raw) conversation += "<|im_end|>\n";
    std::printf("\n  [%zu prompt tokens (%zu cached), %zu new | prefill %.1f ms | decode %.0f tok/s]\n",
                stats.prompt_tokens, stats.cached_tokens, stats.new_tokens, stats.prefill_s * 1e3,
                stats.decode_s > 0 ? (stats.new_tokens - 1) / stats.decode_s : 0.0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Chat(Parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
}
