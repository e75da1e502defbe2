// Ends a test program where a condition does not hold.
#pragma once

#include <cstdlib>
#include <iostream>

#define EXPECT(condition)                                                          \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " << #condition << std::endl; \
      std::exit(1);                                                                \
    }                                                                              \
  } while (false)
