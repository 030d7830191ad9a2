#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace heddle {

void check_failed(const char* file, int line, const char* expression, const std::string& detail) {
  std::fprintf(stderr, "heddle: bug: %s:%d: check failed: %s%s%s\n", file, line, expression, detail.empty() ? "" : ": ",
               detail.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace heddle
