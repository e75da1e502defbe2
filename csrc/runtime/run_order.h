// When queued runs are executed. Results, and where an error of a run is raised, are the same either way.
#pragma once

namespace tcim_lite {

// On: by Module::run itself, so that runs of several streams happen in the order in which one thread asks for them.
void set_run_when_asked(bool on) noexcept;
bool run_when_asked() noexcept;

}  // namespace tcim_lite
