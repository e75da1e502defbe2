#include "base/toml.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/named_file.h"

namespace tcim_lite {
namespace {

constexpr std::string_view kBlank = " \t";
constexpr size_t kMostKeys = 100;  // of a table

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

bool is_control(char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == '\x7f'; }

// As RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto byte = [&](size_t offset) {
      return at + offset < text.size() ? static_cast<unsigned char>(text[at + offset]) : 0u;
    };
    const unsigned lead = byte(0);
    const size_t length = lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : 4;
    if (lead >= 0x80 && (lead < 0xc2 || lead > 0xf4)) return false;
    for (size_t next = 1; next < length; ++next) {
      if ((byte(next) & 0xc0) != 0x80) return false;
    }
    if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f)) return false;
    if ((lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) return false;
    at += length;
  }
  return true;
}

// One line. `rest_` is what has not been read of it.
class Line {
 public:
  Line(std::string_view text, int number, const std::string& file, ErrorCode code)
      : text_(text), rest_(text), number_(number), file_(file), code_(code) {
    skip_blanks();
  }

  [[noreturn]] void refuse(const std::string& expected) const {
    fail(code_, file_, ":", number_, ": got '", printable_start(text_), "', expected ", expected);
  }

  bool at_end() const { return rest_.empty() || rest_[0] == '#'; }
  bool takes(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(kBlank), rest_.size())); }

  void end() {
    skip_blanks();
    if (!at_end()) refuse("nothing but a comment after the value");
  }

  std::string key() {
    skip_blanks();
    size_t length = 0;
    while (length < rest_.size() && is_bare(rest_[length])) ++length;
    if (length == 0) refuse("a name of letters, digits, _ and -");
    std::string name(rest_.substr(0, length));
    rest_.remove_prefix(length);
    skip_blanks();
    if (takes(".")) refuse("a name without dots");
    return name;
  }

  TomlValue value() {
    skip_blanks();
    if (rest_.starts_with("\"\"\"") || rest_.starts_with("'''")) refuse("a string on one line");
    if (takes("\"")) return {quoted(), number_};
    if (takes("'")) return {literal(), number_};
    if (rest_.starts_with('[') || rest_.starts_with('{')) refuse("one value, no list and no inline table");
    const std::string_view word = rest_.substr(0, std::min(rest_.find_first_of(" \t#"), rest_.size()));
    rest_.remove_prefix(word.size());
    if (word == "true" || word == "false") return {word == "true", number_};
    return {number(word), number_};
  }

 private:
  std::string quoted() {
    std::string value;
    while (!rest_.empty()) {
      const char c = rest_[0];
      rest_.remove_prefix(1);
      if (c == '"') return value;
      if (c != '\\') {
        value += c;
        continue;
      }
      constexpr std::string_view kEscapes = "\"\\ntr", kMeant = "\"\\\n\t\r";
      const size_t which = rest_.empty() ? std::string_view::npos : kEscapes.find(rest_[0]);
      if (which == std::string_view::npos) refuse("one of \\\" \\\\ \\n \\t \\r after a backslash");
      value += kMeant[which];
      rest_.remove_prefix(1);
    }
    refuse("a \" at the end of the string");
  }

  std::string literal() {
    const size_t close = rest_.find('\'');
    if (close == std::string_view::npos) refuse("a ' at the end of the string");
    std::string value(rest_.substr(0, close));
    rest_.remove_prefix(close + 1);
    return value;
  }

  // A decimal number; _ may stand between two digits, and no number begins with a 0 that another digit follows.
  std::variant<std::string, int64_t, double, bool> number(std::string_view word) const {
    const char* const kExpected = "a string in quotes, a decimal number, true or false";
    std::string digits;
    for (size_t at = 0; at < word.size(); ++at) {
      const auto is_digit = [&](size_t where) {
        return where < word.size() && word[where] >= '0' && word[where] <= '9';
      };
      if (word[at] != '_') {
        digits += word[at];
      } else if (at == 0 || !is_digit(at - 1) || !is_digit(at + 1)) {
        refuse(kExpected);
      }
    }
    const bool has_sign = digits.starts_with('+') || digits.starts_with('-');
    const std::string_view whole = std::string_view(digits).substr(has_sign ? 1 : 0);
    const auto digits_at = [&](size_t from) {
      return std::min(whole.find_first_not_of("0123456789", from), whole.size()) - from;
    };
    size_t at = digits_at(0);
    if (at == 0 || (at > 1 && whole[0] == '0')) refuse(kExpected);
    const std::string_view signed_digits = std::string_view(digits).substr(digits[0] == '+' ? 1 : 0);
    if (at == whole.size()) {
      int64_t integer = 0;
      const auto parsed = std::from_chars(signed_digits.data(), signed_digits.data() + signed_digits.size(), integer);
      if (parsed.ec != std::errc()) refuse("an integer of at most 64 bits");
      return integer;
    }
    if (whole[at] == '.') {
      const size_t fraction = digits_at(at + 1);
      if (fraction == 0) refuse("a digit on both sides of the point");
      at += 1 + fraction;
    }
    if (at < whole.size() && (whole[at] == 'e' || whole[at] == 'E')) {
      ++at;
      if (at < whole.size() && (whole[at] == '+' || whole[at] == '-')) ++at;
      const size_t exponent = digits_at(at);
      if (exponent == 0) refuse(kExpected);
      at += exponent;
    }
    if (at != whole.size()) refuse(kExpected);
    double real = 0;
    const auto parsed = std::from_chars(signed_digits.data(), signed_digits.data() + signed_digits.size(), real);
    if (parsed.ec != std::errc() || !std::isfinite(real)) refuse("a number in the range of a 64-bit float");
    return real;
  }

  std::string_view text_, rest_;
  int number_;
  const std::string& file_;
  ErrorCode code_;
};

void begin_table(std::vector<TomlTable>& tables, Line& line, int number, size_t most_tables) {
  const bool repeated = line.takes("[");
  TomlTable table{line.key(), repeated, number, {}};
  if (!line.takes(repeated ? "]]" : "]")) line.refuse(repeated ? "]] after the name" : "] after the name");
  line.end();
  const auto same =
      std::find_if(tables.begin() + 1, tables.end(), [&](const TomlTable& other) { return other.name == table.name; });
  if (same != tables.end() && !(same->repeated && repeated)) {
    line.refuse(concat("another name; '", table.name, "' is that of the table in line ", same->line));
  }
  if (tables.size() > most_tables) line.refuse(concat("the end; a file has at most ", most_tables, " tables"));
  tables.push_back(std::move(table));
}

void add_key(TomlTable& table, Line& line) {
  std::string key = line.key();
  if (!line.takes("=")) line.refuse("= after the name");
  TomlValue value = line.value();
  line.end();
  for (const auto& [other, earlier] : table.entries) {
    if (other == key) line.refuse(concat("another name; '", key, "' is set in line ", earlier.line));
  }
  if (table.entries.size() == kMostKeys) line.refuse(concat("the end; a table has at most ", kMostKeys, " keys"));
  table.entries.emplace_back(std::move(key), std::move(value));
}

}  // namespace

const char* kind_name(const TomlValue& value) {
  static constexpr const char* kNames[] = {"a string", "an integer", "a float", "a boolean"};
  return kNames[value.value.index()];
}

std::vector<TomlTable> parse_toml(std::string_view text, const std::string& file, ErrorCode code, size_t most_tables) {
  std::vector<TomlTable> tables(1);
  int number = 1;
  for (size_t begin = 0; begin <= text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view content = text.substr(begin, end - begin);
    begin = end + 1;
    if (end < text.size() && content.ends_with('\r')) content.remove_suffix(1);
    Line line(content, number, file, code);
    if (std::any_of(content.begin(), content.end(), is_control)) line.refuse("text without control characters");
    if (!is_utf8(content)) line.refuse("text in UTF-8");
    if (line.at_end()) continue;
    if (line.takes("[")) {
      begin_table(tables, line, number, most_tables);
    } else {
      add_key(tables.back(), line);
    }
  }
  return tables;
}

}  // namespace tcim_lite
