// The name under which the vendor's video programs include tcim_image_process.h.
#ifndef TCIM_TCIM_IMAGEOPS_H_
#define TCIM_TCIM_IMAGEOPS_H_

#include "tcim/tcim_image_process.h"

#endif  // TCIM_TCIM_IMAGEOPS_H_
