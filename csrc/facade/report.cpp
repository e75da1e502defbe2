#include "facade/report.h"

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace tcim {
namespace {

// Null: "". A pointer, because it must outlive the destructors of its thread: calls may fail in those of other
// thread_local objects and, in the main thread, of static ones and in atexit handlers. A text from there is not freed.
thread_local std::string* t_last_error = nullptr;

struct LastErrorEnd {
  ~LastErrorEnd() { delete std::exchange(t_last_error, nullptr); }
};

Status status_of(tcim_lite::ErrorCode code) {
  switch (code) {
    case tcim_lite::ErrorCode::State:
      return UNINITIALIZED;
    case tcim_lite::ErrorCode::Argument:
    case tcim_lite::ErrorCode::Shape:
    case tcim_lite::ErrorCode::UnknownName:
      return INVALID_ARGUMENT;
    case tcim_lite::ErrorCode::Unsupported:
      return UNSUPPORTED;
    case tcim_lite::ErrorCode::Internal:
    case tcim_lite::ErrorCode::Format:
    case tcim_lite::ErrorCode::Device:
    case tcim_lite::ErrorCode::Aborted:
    case tcim_lite::ErrorCode::Strict:
      return ERR_UNDEFINED;
  }
  return ERR_UNDEFINED;
}

void keep(const char* what, const char* text) noexcept {
  try {
    static thread_local const LastErrorEnd end;
    if (t_last_error == nullptr) t_last_error = new std::string;
    *t_last_error = std::string(what) + ": " + text;
    tcim_lite::log(tcim_lite::LogLevel::Error, *t_last_error);
  } catch (...) {
    if (t_last_error != nullptr) t_last_error->clear();  // no memory for the text
  }
}

}  // namespace

Status internal::report_failure(const char* what) noexcept {
  try {
    throw;
  } catch (const tcim_lite::Error& error) {
    keep(what, error.what());
    return status_of(error.status_code());
  } catch (const std::bad_alloc&) {
    keep(what, "the system has no memory left");
  } catch (const std::exception& error) {
    keep(what, error.what());
  } catch (...) {
    keep(what, "an exception of unknown type");  // of a caller's callback
  }
  return ERR_UNDEFINED;
}

std::string GetLastError() { return t_last_error == nullptr ? std::string() : *t_last_error; }

}  // namespace tcim
