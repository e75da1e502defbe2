#include "tokenizer.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace {

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

bool IsIn(const std::vector<std::pair<uint32_t, uint32_t>>& ranges, uint32_t c) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), std::make_pair(c, UINT32_MAX));
  return after != ranges.begin() && c <= std::prev(after)->second;
}

// Unicode's White_Space.
bool IsSpace(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool IsLineBreak(uint32_t c) { return c == '\r' || c == '\n'; }

struct Character {
  uint32_t code;
  size_t begin;  // of its bytes in the text
};

// A byte that begins no character counts as one.
std::vector<Character> Characters(const std::string& text) {
  std::vector<Character> characters;
  for (size_t i = 0; i < text.size();) {
    const auto first = (unsigned char)text[i];
    const size_t length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 1;
    uint32_t code = length == 1 ? first : first & (0x7f >> length);
    for (size_t k = 1; k < length && i + k < text.size(); ++k) code = code << 6 | (text[i + k] & 0x3f);
    characters.push_back({code, i});
    i += length;
  }
  return characters;
}

// How many characters 's, 't, 're, 've, 'm, 'll or 'd has at `at`, in any case; 0: none is there.
size_t Contraction(const std::vector<Character>& text, size_t at) {
  const auto lower = [&](size_t i) { return i < text.size() && text[i].code < 128 ? text[i].code | 0x20 : 0; };
  if (text[at].code != '\'') return 0;
  const uint32_t a = lower(at + 1), b = lower(at + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

}  // namespace

Tokenizer::Tokenizer(const std::string& path) {
  std::ifstream file(path);
  std::string word, hex;
  size_t count = 0;
  const auto section = [&](const char* name) { return file >> word >> count && word == name; };
  bool good = section("tcim_lite_tokenizer") && count == 1 && section("tokens");
  byte_tokens_.assign(256, -1);
  for (size_t i = 0; good && i < count && file >> hex; ++i) {
    bytes_.push_back(hex == "-" ? "" : FromHex(hex));
    if (bytes_.back().size() == 1) byte_tokens_[(unsigned char)bytes_.back()[0]] = int(i);
  }
  good = good && section("specials");
  for (int id; good && specials_.size() < count && file >> id >> hex;) specials_.emplace_back(FromHex(hex), id);
  good = good && section("merges");
  uint64_t left, right;
  for (Merge merge{0, 0}; good && size_t(merge.rank) < count && file >> left >> right >> merge.token; ++merge.rank) {
    merges_.emplace(left << 32 | right, merge);
  }
  for (Ranges* ranges : {&letters_, &numbers_}) {
    good = good && section(ranges == &letters_ ? "letters" : "numbers");
    for (uint32_t begin, end; good && ranges->size() < count && file >> begin >> end;) {
      ranges->emplace_back(begin, end);
    }
  }
  if (!good || !file || *std::min_element(byte_tokens_.begin(), byte_tokens_.end()) < 0) {
    throw std::runtime_error("cannot read " + path + "; make it with export_tokenizer.py");
  }
}

int Tokenizer::Special(const std::string& text) const {
  for (const auto& special : specials_) {
    if (special.first == text) return special.second;
  }
  throw std::runtime_error("the tokenizer has no token " + text);
}

std::vector<int> Tokenizer::Encode(const std::string& text) const {
  std::vector<int> tokens;
  for (size_t begin = 0; begin < text.size();) {
    // The special token that comes first; of two at the same place the longer.
    size_t at = text.size();
    const std::pair<std::string, int>* next = nullptr;
    for (const auto& special : specials_) {
      const size_t found = text.find(special.first, begin);
      if (found < at || (found == at && next != nullptr && special.first.size() > next->first.size())) {
        at = found;
        next = &special;
      }
    }
    for (const std::string& word : Split(text.substr(begin, at - begin))) EncodeWord(word, tokens);
    if (next != nullptr) tokens.push_back(next->second);
    begin = at + (next == nullptr ? 0 : next->first.size());
  }
  return tokens;
}

// Qwen's pre-tokenizer, alternative by alternative:
//   (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N} | ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+ |
//   \s+(?!\S) | \s+
std::vector<std::string> Tokenizer::Split(const std::string& text) const {
  const std::vector<Character> chars = Characters(text);
  const auto letter = [&](size_t i) { return i < chars.size() && IsIn(letters_, chars[i].code); };
  const auto number = [&](size_t i) { return i < chars.size() && IsIn(numbers_, chars[i].code); };
  const auto space = [&](size_t i) { return i < chars.size() && IsSpace(chars[i].code); };
  const auto line_break = [&](size_t i) { return i < chars.size() && IsLineBreak(chars[i].code); };
  const auto symbol = [&](size_t i) { return i < chars.size() && !letter(i) && !number(i) && !space(i); };

  std::vector<std::string> words;
  for (size_t begin = 0; begin < chars.size();) {
    size_t end = begin + Contraction(chars, begin);
    if (end == begin) {
      const size_t word = begin + (letter(begin) || number(begin) || line_break(begin) ? 0 : 1);
      const size_t symbols = begin + (chars[begin].code == ' ' ? 1 : 0);
      if (letter(word)) {
        for (end = word; letter(end);) ++end;
      } else if (number(begin)) {
        end = begin + 1;
      } else if (symbol(symbols)) {
        for (end = symbols; symbol(end);) ++end;
        while (line_break(end)) ++end;
      } else {  // white space
        while (space(end)) ++end;
        size_t last_break = end;
        while (last_break > begin && !line_break(last_break - 1)) --last_break;
        if (last_break > begin) {
          end = last_break;
        } else if (end < chars.size() && end - begin > 1) {
          --end;  // the last one belongs to the word that follows
        }
      }
    }
    const size_t from = chars[begin].begin, to = end < chars.size() ? chars[end].begin : text.size();
    words.push_back(text.substr(from, to - from));
    begin = end;
  }
  return words;
}

// Joins the pair that was learnt first, again and again.
void Tokenizer::EncodeWord(const std::string& word, std::vector<int>& tokens) const {
  std::vector<int> parts;
  for (const char byte : word) parts.push_back(byte_tokens_[(unsigned char)byte]);
  for (;;) {
    const Merge* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = merges_.find(uint64_t(parts[i]) << 32 | uint32_t(parts[i + 1]));
      if (found == merges_.end() || (best != nullptr && found->second.rank >= best->rank)) continue;
      best = &found->second;
      at = i;
    }
    if (best == nullptr) break;
    parts[at] = best->token;
    parts.erase(parts.begin() + at + 1);
  }
  tokens.insert(tokens.end(), parts.begin(), parts.end());
}
