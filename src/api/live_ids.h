#pragma once
// Which engine requests belong to the ids that clients have seen and that are still being answered. Loop thread only.
// Ids of clients need not be unique, and one may begin with another: so a lookup is by the whole id, and gives all.
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::api {

class LiveIds {
 public:
  // Listed until the handle is dropped, which may be after this object is gone.
  [[nodiscard]] std::shared_ptr<void> add(std::string external, std::vector<std::string> engine_ids) {
    const auto place = entries_->emplace(std::move(external), std::move(engine_ids));
    return {nullptr, [entries = entries_, place](void*) { entries->erase(place); }};
  }

  std::vector<std::string> find(std::string_view external) const {
    std::vector<std::string> ids;
    const auto [begin, end] = entries_->equal_range(external);
    for (auto entry = begin; entry != end; ++entry) ids.insert(ids.end(), entry->second.begin(), entry->second.end());
    return ids;
  }

  size_t size() const { return entries_->size(); }

 private:
  using Entries = std::multimap<std::string, std::vector<std::string>, std::less<>>;
  std::shared_ptr<Entries> entries_ = std::make_shared<Entries>();
};

}  // namespace heddle::api
