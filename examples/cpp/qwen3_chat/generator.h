// Greedy generation: prefill a prompt in chunks, then decode one token at a time.
#pragma once

#include <functional>
#include <vector>

#include "package.h"

class Generator {
 public:
  explicit Generator(Package& package);

  struct Stats {
    size_t prompt_tokens = 0, cached_tokens = 0, new_tokens = 0;
    double prefill_s = 0, decode_s = 0;
  };

  // Calls `on_token` for each new token until `stop` (which is not passed on), `limit` tokens, or a full context.
  // What the cache still holds from the call before is not computed again.
  Stats Generate(const std::vector<int>& prompt, int stop, int limit, const std::function<void(int)>& on_token);

 private:
  // Runs `count` tokens from position `start` on; returns the most likely next one.
  int Run(tcim::Module& module, const int* tokens, int64_t count, int64_t start);

  Package& package_;
  tcim::Tensor prefill_rows_, decode_rows_;  // host, [1, tokens, hidden] fp16
  tcim::Tensor logits_;                      // host, FLOAT32
  std::vector<int> cached_;
};
