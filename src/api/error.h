#pragma once
// What a client did wrong, or what the server cannot do now, in the shape of vLLM's error object. Pure values, any
// thread.
#include <string>
#include <string_view>

#include "api/http.h"
#include "base/result.h"

namespace heddle::api {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;   // path of the field, such as messages[1].content; empty: null
  std::string code{};  // a word for programs; empty: the status
};

template <class T>
using ApiResult = Result<T, ApiError>;

inline tl::unexpected<ApiError> bad_request(std::string param, std::string message) {
  return tl::unexpected<ApiError>(ApiError{400, std::move(message), std::move(param), {}});
}

// {"error":{"message":…,"type":…,"param":…,"code":…}}; type follows the status: BadRequestError, NotFoundError, ….
std::string error_body(const ApiError& error);
HttpReply error_reply(const ApiError& error);

}  // namespace heddle::api
