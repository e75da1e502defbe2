// The reader of settings files: what it reads, what it refuses and with which words, and that no bytes upset it.
#include "base/toml.h"

#include <random>
#include <string>

#include "check.h"

using namespace tcim_lite;

namespace {

constexpr const char* kFile = R"(# above every header
seed = 7
[chip]  # one
name = "a \"b\" \\ \n\t" # with a comment
path = 'C:\n'
on = true
off=false
[[fault]]
small = -1_000
rate = 2.5e-3
[[fault]]
small = +3
)";

std::vector<TomlTable> parse(const std::string& text) { return parse_toml(text, "f.toml", ErrorCode::Argument); }

std::string refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::Argument);
    return error.what();
  }
  return "nothing was refused";
}

TEST(values) {
  const auto tables = parse(kFile);
  CHECK(tables.size() == 4);
  CHECK(tables[0].name.empty() && std::get<int64_t>(tables[0].entries[0].second.value) == 7);
  CHECK(tables[1].name == "chip" && !tables[1].repeated && tables[1].line == 3);
  CHECK(std::get<std::string>(tables[1].entries[0].second.value) == "a \"b\" \\ \n\t");
  CHECK(std::get<std::string>(tables[1].entries[1].second.value) == "C:\\n");
  CHECK(std::get<bool>(tables[1].entries[2].second.value) && !std::get<bool>(tables[1].entries[3].second.value));
  CHECK(tables[2].repeated && std::get<int64_t>(tables[2].entries[0].second.value) == -1000);
  CHECK(std::get<double>(tables[2].entries[1].second.value) == 2.5e-3 && tables[2].entries[1].second.line == 10);
  CHECK(std::get<int64_t>(tables[3].entries[0].second.value) == 3);
  CHECK(parse("").size() == 1 && parse("a = 1\r\n\r\n").size() == 1);
}

TEST(refusals) {
  const std::pair<const char*, const char*> cases[] = {
      {"a", "f.toml:1: got 'a', expected = after the name"},
      {"\na = 1\na = 2", "f.toml:3: got 'a = 2', expected another name; 'a' is set in line 2"},
      {"= 1", "expected a name of letters"},
      {"a.b = 1", "a name without dots"},
      {"a = ", "a string in quotes, a decimal number, true or false"},
      {"a = yes", "a string in quotes"},
      {"a = 1 2", "nothing but a comment after the value"},
      {"a = [1]", "no list and no inline table"},
      {"a = {}", "no list and no inline table"},
      {"a = \"\"\"b\"\"\"", "a string on one line"},
      {"a = \"b", "a \" at the end of the string"},
      {"a = 'b", "a ' at the end of the string"},
      {"a = \"\\x\"", "after a backslash"},
      {"a = 0x10", "a decimal number"},
      {"a = 01", "a decimal number"},
      {"a = 1__0", "a decimal number"},
      {"a = _1", "a decimal number"},
      {"a = 1.", "a digit on both sides"},
      {"a = .5", "a decimal number"},
      {"a = 1e", "a decimal number"},
      {"a = inf", "a decimal number"},
      {"a = 1e999", "in the range of a 64-bit float"},
      {"a = 9223372036854775808", "at most 64 bits"},
      {"a = 2026-11-24", "a decimal number"},
      {"[a", "] after the name"},
      {"[[a]", "]] after the name"},
      {"[a]\n[a]", "another name; 'a' is that of the table in line 1"},
      {"[a]\n[[a]]", "another name"},
      {"a = \"\x01\"", "got 'a = \"?\"', expected text without control characters"},
      {"a = \"\xff\"", "text in UTF-8"},
      {"a = \"\xc0\x80\"", "text in UTF-8"},
      {"a = \"\xed\xa0\x80\"", "text in UTF-8"},
      {"a = 1\rb = 2", "control characters"},
  };
  for (const auto& [text, words] : cases) {
    CHECK_ERROR(parse(text), words);
  }
  std::string many;
  for (int i = 0; i < 101; ++i) many += concat("k", i, " = 1\n");
  CHECK_ERROR(parse(many), "at most 100 keys");
  many.clear();
  for (int i = 0; i < 1001; ++i) many += "[[t]]\n";
  CHECK_ERROR(parse(many), "at most 1000 tables");
}

// Every byte string is read or refused with its place; a fuzz target with coverage is fuzz_toml.
TEST(random_bytes) {
  std::mt19937 random(1);
  const std::string start = kFile;
  for (int round = 0; round < 20000; ++round) {
    std::string text = start;
    for (unsigned edit = 0, edits = 1 + random() % 4; edit < edits; ++edit) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = char(random());
          break;
        case 1:
          text.erase(at, random() % 9);
          break;
        default:
          text.insert(at, start, random() % start.size(), random() % 9);
      }
      if (text.empty()) text.push_back('#');
    }
    const std::string found = refusal(text);
    CHECK(found == "nothing was refused" || found.starts_with("f.toml:"));
  }
}

}  // namespace

int main() { return run_tests(); }
