// The state of exceptions (Itanium C++ ABI 2.2.2) that all our libraries share. Where each of them is linked with a C++
// runtime of its own, --wrap (link.cmake) leads theirs here: an exception thrown in one and caught in another is then
// counted once, as if there were one runtime.
#include <cxxabi.h>

#pragma GCC visibility push(default)
extern "C" {

// The linker makes up the names.
abi::__cxa_eh_globals* __wrap___cxa_get_globals() noexcept { return abi::__cxa_get_globals(); }
abi::__cxa_eh_globals* __wrap___cxa_get_globals_fast() noexcept { return abi::__cxa_get_globals_fast(); }

}  // extern "C"
#pragma GCC visibility pop
