#pragma once
// A ResponseSink that remembers, for tests of the dialects without a network.
#include <string>
#include <vector>

#include "api/http.h"

namespace heddle::test {

struct FakeSink : api::ResponseSink {
  std::vector<api::HttpReply> replies;
  std::vector<std::string> events;
  int stream_status = 0;
  bool ended = false;
  api::Flow flow = api::Flow::open;
  std::function<void(api::Gone)> gone;
  std::function<void()> writable;
  std::string notes;

  void reply(api::HttpReply reply) override { replies.push_back(std::move(reply)); }
  void start_stream(int status, std::string_view, api::HeaderList) override { stream_status = status; }
  api::Flow write(std::string_view chunk) override {
    events.emplace_back(chunk);
    return flow;
  }
  void end() override { ended = true; }
  bool closed() const override { return ended || !replies.empty(); }
  size_t unsent_bytes() const override { return 0; }
  void on_gone(std::function<void(api::Gone)> callback) override { gone = std::move(callback); }
  void on_writable(std::function<void()> callback) override { writable = std::move(callback); }
  void annotate(std::string_view words) override {
    if (!notes.empty()) notes += ' ';
    notes += words;
  }
};

}  // namespace heddle::test
