// What to say of a model that is not there: a program that was written for the card often asks for a file that its
// package could have and has not.
#pragma once

#include <string>

namespace tcim_lite {

// Throws Error(Format): that there is no file `path`, what models its folder has, and the command that makes it.
[[noreturn]] void refuse_missing_model(const std::string& path);

}  // namespace tcim_lite
