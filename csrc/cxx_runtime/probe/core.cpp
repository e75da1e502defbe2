#include "core.h"

#include <exception>
#include <sstream>

namespace probe {

Error::~Error() = default;

void fail(const char* text) {
  std::ostringstream message;
  message << "core " << 1.5 << ' ' << text;
  throw Error(message.str());
}

int uncaught() noexcept { return std::uncaught_exceptions(); }

}  // namespace probe
