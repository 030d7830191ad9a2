#pragma once
// What the admin endpoints are asked, in the shapes of vLLM's: parameters in the query, and a body for
// /abort_requests. Each reader fails with one line that names the parameter. Pure; any thread.
#include <string>
#include <string_view>
#include <vector>

#include "api/http.h"
#include "base/result.h"
#include "engine/engine.h"

namespace heddle::api {

struct PauseRequest {
  engine::PauseMode mode = engine::PauseMode::abort;
  bool clear_cache = true;
};
struct SleepRequest {
  engine::SleepLevel level = engine::SleepLevel::weights;
  engine::PauseMode mode = engine::PauseMode::abort;
};
struct WakeRequest {
  engine::WakeTags tags;           // all of them when none is named
  std::vector<std::string> named;  // as sent
};

Result<PauseRequest> read_pause(std::string_view query);
Result<SleepRequest> read_sleep(std::string_view query);
Result<WakeRequest> read_wake_up(std::string_view query);
// Whether running requests are to be reset too.
Result<bool> read_reset_prefix_cache(std::string_view query);
// An endpoint that takes no parameters.
Result<void> read_nothing(std::string_view query);
// The ids; none: all requests.
Result<std::vector<std::string>> read_abort_requests(const HttpRequest& request);

}  // namespace heddle::api
