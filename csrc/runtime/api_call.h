// Every public call of the runtime passes through here: listeners are told of the call (observer.h), and a fork waits
// for its end.
//
// A fork first waits until no call is running and every stream is empty; calls that begin meanwhile wait for it, at
// most ten seconds. The child then starts from a consistent state: no lock is held by a thread that the child does not
// have, and no queued work is left that no thread would finish (C-20).
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "base/no_copy.h"
#include "runtime/observer.h"

namespace tcim_lite {

// Marks this thread as being inside a call. Calls may nest.
class ApiCall : public NoCopy {
 public:
  ApiCall() noexcept;
  ~ApiCall();

  bool outermost() const noexcept { return outermost_; }
  // Whether this thread is in a call that another call has made, which may hold a lock.
  static bool nested() noexcept;

  // Lets a fork through meanwhile: this thread is inside a call but holds no lock and changes nothing.
  class Pause : public NoCopy {
   public:
    Pause() noexcept;
    ~Pause();

   private:
    const int depth_;
  };

 private:
  bool outermost_;
};

// How results look in an event. Others are left out.
inline void describe_result(CallEvent& event, const Tensor& tensor) {
  event.result = TensorFacts(tensor);
  event.made = host_array(tensor);
}
inline void describe_result(CallEvent& event, const ArrayMemory& array) {
  describe_result(event, array.tensor);
  if (event.made) event.made->data = array.data;
}
inline void describe_result(CallEvent& event, const std::string& text) { event.value = text; }
inline void describe_result(CallEvent& event, const TensorInfo& info) {
  event.value = to_string(info);
  event.info = TensorFacts(info, nullptr, 0);
}
template <typename Result>
void describe_result([[maybe_unused]] CallEvent& event, [[maybe_unused]] const Result& result) {
  if constexpr (std::is_integral_v<Result>) event.value = std::to_string(result);
}

struct Undescribed {
  void operator()(CallEvent&) const noexcept {}
};

template <size_t Size>
struct CallName {
  consteval CallName(const char (&text)[Size]) { std::copy_n(text, Size, chars); }
  char chars[Size];
};

// A call that needs the device: it fails while that is lost, and rules of faults can name it.
template <CallName Name>
inline const KnownCall device_call{Name.chars, true};
// Facts that the host has, and clean-up, which always works.
template <CallName Name>
inline const KnownCall host_call{Name.chars, false};

// Runs `body` as a call, such as device_call<"Module.run">, and returns its result. `describe(event)` fills in the
// facts; if there are listeners it is called before the body and, if the call succeeds, again afterwards. Calls that
// the body makes are not events.
template <typename Describe, typename Body>
auto api_call(const KnownCall& known, const Describe& describe, const Body& body) -> std::invoke_result_t<Body> {
  const ApiCall inside;
  if (!observed() || !inside.outermost()) [[likely]]
    return body();
  ObservedCall call(known);
  if (!call.anybody()) return body();
  describe(call.event());
  if constexpr (std::is_void_v<std::invoke_result_t<Body>>) {
    try {
      call.begin();
      body();
      describe(call.event());
    } catch (...) {
      call.fail();
      throw;
    }
    call.end();
  } else {
    auto result = [&] {
      try {
        call.begin();
        auto made = body();
        describe(call.event());
        describe_result(call.event(), made);
        return made;
      } catch (...) {
        call.fail();
        throw;
      }
    }();
    call.end();
    return result;
  }
}

}  // namespace tcim_lite
