#include "api/admin_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/value.hpp>
#include <optional>

#include "api/ascii.h"
#include "api/fields.h"
#include "api/query.h"

namespace heddle::api {
namespace json = boost::json;
namespace {

std::string wrong(const QueryParameter& parameter, std::string_view forms) {
  return fmt::format("`{}` must be {}, got '{}'", parameter.name, forms, parameter.value.substr(0, 60));
}

std::string unknown(const QueryParameter& parameter) {
  return fmt::format("unknown parameter `{}`", parameter.name.substr(0, 60));
}

Result<engine::PauseMode> read_mode(const QueryParameter& parameter) {
  if (parameter.value == "abort") return engine::PauseMode::abort;
  if (parameter.value == "wait") return engine::PauseMode::wait;
  if (parameter.value == "keep") return engine::PauseMode::keep;
  return fail(wrong(parameter, "abort, wait or keep"));
}

// The words that FastAPI takes.
Result<bool> read_flag(const QueryParameter& parameter) {
  for (std::string_view word : {"true", "1", "yes", "on"}) {
    if (equals_ignoring_case(parameter.value, word)) return true;
  }
  for (std::string_view word : {"false", "0", "no", "off"}) {
    if (equals_ignoring_case(parameter.value, word)) return false;
  }
  return fail(wrong(parameter, "true or false"));
}

// Calls read(parameter) for each parameter of the query; it says what is wrong.
template <class Read>
Result<void> each_parameter(std::string_view query, Read read) {
  const Result<std::vector<QueryParameter>> parameters = parse_query(query);
  if (!parameters) return tl::unexpected(parameters.error());
  for (const QueryParameter& parameter : *parameters) {
    if (Result<void> done = read(parameter); !done) return done;
  }
  return {};
}

}  // namespace

Result<PauseRequest> read_pause(std::string_view query) {
  PauseRequest request;
  const Result<void> read = each_parameter(query, [&](const QueryParameter& parameter) -> Result<void> {
    if (parameter.name == "mode") return read_mode(parameter).map([&](engine::PauseMode m) { request.mode = m; });
    if (parameter.name == "clear_cache") return read_flag(parameter).map([&](bool v) { request.clear_cache = v; });
    return fail(unknown(parameter));
  });
  if (!read) return tl::unexpected(read.error());
  return request;
}

Result<SleepRequest> read_sleep(std::string_view query) {
  SleepRequest request;
  const Result<void> read = each_parameter(query, [&](const QueryParameter& parameter) -> Result<void> {
    if (parameter.name == "mode") return read_mode(parameter).map([&](engine::PauseMode m) { request.mode = m; });
    if (parameter.name != "level") return fail(unknown(parameter));
    if (parameter.value != "0" && parameter.value != "1" && parameter.value != "2")
      return fail(wrong(parameter, "0, 1 or 2"));
    request.level = static_cast<engine::SleepLevel>(parameter.value[0] - '0');
    return {};
  });
  if (!read) return tl::unexpected(read.error());
  return request;
}

Result<WakeRequest> read_wake_up(std::string_view query) {
  WakeRequest request;
  engine::WakeTags named{.weights = false, .kv_cache = false, .scheduling = false};
  const Result<void> read = each_parameter(query, [&](const QueryParameter& parameter) -> Result<void> {
    if (parameter.name != "tags") return fail(unknown(parameter));
    if (parameter.value == "weights")
      named.weights = true;
    else if (parameter.value == "kv_cache")
      named.kv_cache = true;
    else if (parameter.value == "scheduling")
      named.scheduling = true;
    else
      return fail(wrong(parameter, "weights, kv_cache or scheduling"));
    request.named.push_back(parameter.value);
    return {};
  });
  if (!read) return tl::unexpected(read.error());
  if (!request.named.empty()) request.tags = named;
  return request;
}

Result<bool> read_reset_prefix_cache(std::string_view query) {
  bool reset_running = false;
  const Result<void> read = each_parameter(query, [&](const QueryParameter& parameter) -> Result<void> {
    if (parameter.name == "reset_running_requests") return read_flag(parameter).map([&](bool v) { reset_running = v; });
    if (parameter.name != "reset_external") return fail(unknown(parameter));
    const Result<bool> external = read_flag(parameter);
    if (!external) return tl::unexpected(external.error());
    if (*external) return fail("`reset_external` must be false: this server has no external cache");
    return {};
  });
  if (!read) return tl::unexpected(read.error());
  return reset_running;
}

Result<void> read_nothing(std::string_view query) {
  return each_parameter(query,
                        [](const QueryParameter& parameter) -> Result<void> { return fail(unknown(parameter)); });
}

Result<std::vector<std::string>> read_abort_requests(const HttpRequest& request) {
  if (Result<void> read = read_nothing(request.query); !read) return tl::unexpected(read.error());
  std::vector<std::string> ids;
  if (request.body.empty()) return ids;
  const ApiResult<json::object> body = parse_body(request);
  if (!body) return fail(body.error().message);
  for (const auto& member : *body) {
    if (member.key() != "request_ids")
      return fail(fmt::format("unknown field `{}`", std::string_view(member.key()).substr(0, 60)));
  }
  FieldReader reader(*body);
  const json::value* list = reader.take("request_ids");
  if (list == nullptr) return ids;
  if (!list->is_array()) return fail(fmt::format("`request_ids` must be a list of strings, got {}", shown(*list)));
  for (size_t i = 0; i < list->get_array().size(); ++i) {
    const ApiResult<std::string> id = read_string(fmt::format("request_ids[{}]", i), list->get_array()[i], {1, 1024});
    if (!id) return fail(id.error().message);
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace heddle::api
