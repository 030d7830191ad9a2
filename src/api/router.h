#pragma once
// From a request to its endpoint: an exact table of paths and methods, behind the checks that hold for all of them.
// Filled by app at start, owned by it, read on the loop thread. What is not served here is answered in admit(), before
// a body is read: preflight 204, wrong key 401, unknown path 404, wrong method 405 with Allow, coded body 415.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "api/access.h"
#include "api/http.h"

namespace heddle::api {

class Router final : public Handler {
 public:
  using Endpoint = std::function<void(HttpRequest, std::shared_ptr<ResponseSink>)>;

  explicit Router(AccessPolicy policy) : policy_(std::move(policy)) {}

  // `path` as it stands after decoding. A path that ends in "/*" takes every longer one that has no exact entry; the
  // longest such prefix wins. GET answers HEAD too. Adding one pair twice is a bug.
  void add(std::string method, const std::string& path, Endpoint endpoint);

  Admission admit(const HttpRequest& head) override;
  void handle(HttpRequest request, std::shared_ptr<ResponseSink> sink) override;

 private:
  using Methods = std::map<std::string, Endpoint, std::less<>>;

  const Methods* find(std::string_view path) const;
  static const Endpoint* find(const Methods& methods, std::string_view method);
  std::optional<HttpReply> refuse(const HttpRequest& head) const;

  AccessPolicy policy_;
  std::map<std::string, Methods, std::less<>> routes_;
};

}  // namespace heddle::api
