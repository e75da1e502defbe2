// The tokenizer of the Qwen models: byte-level BPE behind Qwen's pre-tokenizer. It reads `cpp_tokenizer.txt`, which
// export_tokenizer.py makes from a tokenizer.json. Text is taken as it is; type it composed (Unicode NFC), as keyboards
// do.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

class Tokenizer {
 public:
  // Throws std::runtime_error for a missing or damaged file.
  explicit Tokenizer(const std::string& path);

  // Token ids of UTF-8 text; special tokens such as <|im_end|> are recognised inside it.
  std::vector<int> Encode(const std::string& text) const;
  // The bytes of a token; "" for a special one. A character may be spread over several tokens.
  const std::string& Bytes(int token) const { return bytes_.at(token); }
  // Throws std::runtime_error when there is no such special token.
  int Special(const std::string& text) const;

 private:
  using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;  // inclusive, ascending

  struct Merge {
    int rank, token;
  };

  std::vector<std::string> Split(const std::string& text) const;
  void EncodeWord(const std::string& word, std::vector<int>& tokens) const;

  std::vector<std::string> bytes_;
  std::vector<int> byte_tokens_;  // [256]
  std::vector<std::pair<std::string, int>> specials_;
  std::unordered_map<uint64_t, Merge> merges_;  // by left << 32 | right
  Ranges letters_, numbers_;
};
