#include "runtime/api_version.h"

#include "base/env.h"
#include "base/error.h"

namespace tcim_lite {

ApiVersion emulated_version() {
  const auto text = env_text("TCIM_LITE_EMULATE");
  if (!text || *text == "1.4") return ApiVersion::V1_4;
  if (*text == "1.3") return ApiVersion::V1_3;
  fail(ErrorCode::Argument, "TCIM_LITE_EMULATE='", *text, "': expected 1.3 or 1.4, the runtime's version to imitate");
}

std::string_view name_of(ApiVersion version) noexcept { return version == ApiVersion::V1_3 ? "v1.3.0" : "v1.4.0"; }

}  // namespace tcim_lite
