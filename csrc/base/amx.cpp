#include "base/amx.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tcim_lite {

bool request_amx_tiles() {
#if defined(__x86_64__)
  // Documentation/arch/x86/xstate.rst: ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace tcim_lite
