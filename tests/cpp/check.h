// Checks for the test programs: a failure prints file, line and both sides, and makes check_result() non-zero.
#pragma once

#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"

inline int g_check_failures = 0;

inline void report_failure(const char* file, int line, const std::string& text) {
  std::cerr << file << ":" << line << ": " << text << "\n";
  ++g_check_failures;
}

// What main() returns, of a program that calls its checks itself.
inline int check_result() {
  if (g_check_failures != 0) std::cerr << g_check_failures << " checks failed\n";
  return g_check_failures != 0;
}

inline std::vector<void (*)()> g_tests;

// TEST(name) { .. }: run_tests() calls it, in the order of the file.
#define TEST(name)                                                                        \
  void test_##name();                                                                     \
  [[maybe_unused]] const bool registered_##name = (g_tests.push_back(test_##name), true); \
  void test_##name()

// What main() returns otherwise.
inline int run_tests() {
  for (void (*test)() : g_tests) test();
  return check_result();
}

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) report_failure(__FILE__, __LINE__, #condition); \
  } while (false)

#define CHECK_EQ(left, right)                                                                        \
  do {                                                                                               \
    const auto& check_left = (left);                                                                 \
    const auto& check_right = (right);                                                               \
    if (!(check_left == check_right))                                                                \
      report_failure(__FILE__, __LINE__,                                                             \
                     tcim_lite::concat(#left " == " #right ": ", check_left, " and ", check_right)); \
  } while (false)

// The expression throws tcim_lite::Error whose message contains `text`.
#define CHECK_ERROR(expression, text)                                                                       \
  do {                                                                                                      \
    try {                                                                                                   \
      (void)(expression);                                                                                   \
      report_failure(__FILE__, __LINE__, std::string(#expression " throws nothing, expected: ") + (text));  \
    } catch (const tcim_lite::Error& error) {                                                               \
      if (std::string(error.what()).find(text) == std::string::npos)                                        \
        report_failure(__FILE__, __LINE__, std::string("got '") + error.what() + "', expected: " + (text)); \
    }                                                                                                       \
  } while (false)
