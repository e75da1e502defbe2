// Reports a finding: a line in the log, an error, and an entry in the list that tests read.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tcim_lite::layers {

enum class StrictMode { Warn, Error };

struct Finding {
  std::string code;
  std::string detail;   // what exactly, in this case
  std::string site;     // "demo.py:12", or the API call where no Python calls
  std::string message;  // all of it
};

// Findings of one kind at one place are reported once. With `raise`, mode Error throws Error(Strict).
void report(StrictMode mode, std::string_view code, const std::string& detail, const std::string& site, bool raise);

// What was found since the last call of this; places count as new afterwards. At most 1000 are kept.
std::vector<Finding> take_findings();

}  // namespace tcim_lite::layers
