#pragma once
// The `loop` of a running for statement. Shared by the statement and by whatever value the template keeps of it; one
// render's thread only.
#include <cstddef>
#include <vector>

#include "text/jinja_value.h"

namespace heddle::text::jinja {

struct Statement;
struct Scope;

struct LoopState {
  std::vector<Value> items;
  std::size_t index = 0;                 // of the current item
  int depth = 0;                         // of recursive loops, 0 outermost
  const Statement* recursive = nullptr;  // set when the loop can be called
  Scope* scope = nullptr;                // around the statement, for recursive calls
  std::vector<Value> last_changed;       // what changed() saw last; dropped at the end, as it may hold the loop
  bool changed_before = false;
  bool ended = false;
  Nesting nesting;
};

}  // namespace heddle::text::jinja
