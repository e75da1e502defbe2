// A package folder as `tcim-lite compile` writes it, loaded: prefill and decode share weights and KV caches.
#pragma once

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tcim/tcim_runtime.h"

// Throws std::runtime_error; the runtime's log says why.
inline void Check(tcim::Status status, const std::string& what) {
  if (status != tcim::OK) throw std::runtime_error(what + " failed with status " + std::to_string(int(status)));
}

// Inputs 3 and later of both graphs; 4 and later where input 3 is the tokens' positions, 5 and later where 3 and 4 are
// masks.
std::vector<std::string> CacheNames(const tcim::Module& module);

// Of a package compiled with --position-ids.
bool TakesPositions(const tcim::Module& module);
// Says that the tokens of the next run follow `start` others, where the graph wants to know.
void SetPositions(tcim::Module& module, int64_t start);

// Of gpt-oss compiled with --masks.
bool TakesMasks(const tcim::Module& module);
// Says what the `count` tokens of the next run see, which follow `start` others, where the graph wants to know.
void SetMasks(tcim::Module& module, int64_t start, int64_t count);

// Rows of a table [vocabulary, hidden] of fp16, read where they lie in the file.
class Embedding {
 public:
  Embedding(const std::string& path, int64_t vocabulary, int64_t hidden);
  // Writes row `token` to `target`, [hidden] fp16.
  void Row(int token, void* target);

 private:
  std::ifstream file_;
  int64_t vocabulary_, row_bytes_;
};

// The name of the package in a folder: that of the one prefill graph without a draft's.
std::string PackageName(const std::string& folder);

struct Package {
  // `folder` holds <name>_prefill.hmm, <name>_decode.hmm, hmquant/quant_embedding.bin.
  Package(const std::string& folder, const std::string& name);

  tcim::Module::WeightManager weights;
  tcim::Module prefill;  // inputs: embeddings [1, prefill_length, hidden], valid_length, current_length, caches;
                         // before the caches position_ids [1, prefill_length] if TakesPositions, or if TakesMasks
                         // the masks of layers with a sliding window and of the others
  tcim::Module decode;   // the same with one token; its caches are prefill's
  int64_t prefill_length, context_length, hidden, vocabulary;
  Embedding embedding;
};

// The index of the largest of `count` values.
int Argmax(const float* values, int64_t count);
