#include "api/error.h"

#include <fmt/format.h>

#include "api/json_text.h"

namespace heddle::api {
namespace {

std::string_view type_of(int status) {
  switch (status) {
    case 400:
      return "BadRequestError";
    case 401:
      return "AuthenticationError";
    case 404:
      return "NotFoundError";
    case 405:
      return "MethodNotAllowedError";
    case 413:
      return "RequestTooLargeError";
    case 415:
      return "UnsupportedMediaTypeError";
    case 429:
      return "RateLimitError";
    case 501:
      return "NotImplementedError";
    case 503:
      return "ServiceUnavailableError";
    case 504:
      return "TimeoutError";
    default:
      return status < 500 ? "BadRequestError" : "InternalServerError";
  }
}

}  // namespace

std::string error_body(const ApiError& error) {
  std::string out;
  out += "{\"error\":{\"message\":";
  append_json_string(out, error.message);
  out += ",\"type\":";
  append_json_string(out, type_of(error.status));
  out += ",\"param\":";
  if (error.param.empty())
    out += "null";
  else
    append_json_string(out, error.param);
  out += ",\"code\":";
  if (error.code.empty())
    append_number(out, error.status);
  else
    append_json_string(out, error.code);
  out += "}}";
  return out;
}

HttpReply error_reply(const ApiError& error) { return {error.status, "application/json", error_body(error), {}}; }

}  // namespace heddle::api
