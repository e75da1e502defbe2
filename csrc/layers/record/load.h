// What a recording tells of a load: its options, and what says whether a file is the one that was loaded.
#pragma once

#include "layers/record/text.h"
#include "runtime/observer.h"

namespace tcim_lite::layers {

// The member "load" of a call that has options.
void add_load(RecordText& text, const CallEvent& event);

}  // namespace tcim_lite::layers
