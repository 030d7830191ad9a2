#pragma once
// A scope of coroutines: the only way to start one that its caller does not await. Owned by whatever must outlive the
// work; loop thread only. It can ask all to stop, wait for all, and refuses to die before they have ended.
//
// Contract for a task
// - cancel() makes the operation that the task waits for complete with operation_aborted; it does not throw, and it
// happens
//   once: a later co_await waits as usual. So a task returns when it sees that code, and its clean-up is synchronous.
// - a task that was cancelled before it first ran never runs: its arguments are destroyed, no more.
// - an exception that leaves a task is logged and counted, and ends only that task.
#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "net/asio.h"

namespace heddle::net {

class Scope {
 public:
  Scope(Executor executor, std::string name);
  ~Scope();  // a scope with work in it is a bug
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  // Starts from the loop, not from inside this call. After cancel(), new tasks are destroyed unrun.
  void spawn(Task<> task);
  void cancel();
  Task<> join();  // returns when the scope is empty

  size_t size() const;
  uint64_t failures() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the completions on their way
};

}  // namespace heddle::net
