#include "base/error.h"

namespace tcim_lite {

Error::~Error() = default;

}  // namespace tcim_lite
