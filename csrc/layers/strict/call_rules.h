// The rules of strict mode that a call can break, and what calls say about memory.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "layers/strict/shadow.h"

namespace tcim_lite::layers {

using Found = std::vector<std::pair<const char*, std::string>>;  // code, detail

// Before the call. Work with a missing sync counts as synced afterwards, so that it is reported only once.
Found check_call(Shadow& shadow, const CallEvent& event);
// Of a call that failed.
Found check_error(const CallEvent& event);
// After one that succeeded.
void learn(Shadow& shadow, const CallEvent& event);

// After one that failed.
void learn_failure(Shadow& shadow, const CallEvent& event);
// Before Module.run.
void queue_run(Shadow& shadow, const CallEvent& event, const std::string& site);

}  // namespace tcim_lite::layers
