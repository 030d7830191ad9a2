#pragma once
// The operator's endpoints, behind --enable-admin-endpoints: pause, sleep, wake, reset, abort. They need an API key
// like every other route when there is one. Loop thread only. An operation runs as a coroutine of the server's scope:
// it answers when it has taken effect, and goes on when its client does not wait for that.
#include "app/server_state.h"

namespace heddle::app {

void add_admin_routes(ServerState& state);

}  // namespace heddle::app
