#pragma once
// Ids for requests that bring none: 32 hexadecimal digits, unpredictable enough not to collide between servers. Loop
// thread only.
#include <string>

namespace heddle::net {

std::string make_request_id();

}  // namespace heddle::net
