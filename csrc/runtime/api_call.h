// The narrow place every public call of the runtime passes (design.md section 5): listeners will hook in here.
//
// It is also what a fork waits for. A fork first waits until no call is inside and every stream is empty, so the child
// starts from a consistent state: no lock held by a thread it does not have, no work that nobody will finish (C-20).
#pragma once

namespace tcim_lite {

class ApiCall {
 public:
  // `name` is a literal such as "Module.run". Calls may nest.
  explicit ApiCall(const char* name) noexcept;
  ~ApiCall();
  ApiCall(const ApiCall&) = delete;
  ApiCall& operator=(const ApiCall&) = delete;

  // Lets a fork through meanwhile: this thread is inside a call but holds no lock and changes nothing.
  class Pause {
   public:
    Pause() noexcept;
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    const int depth_;
  };
};

}  // namespace tcim_lite
