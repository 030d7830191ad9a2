#pragma once
// A request or a session of the random test, as its client sees it: what it was given, what it was told, and whether
// that agrees with the book. Lives until its world does, since it is the engine's sink.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/output.h"
#include "random_model.h"

namespace heddle::engine::random_test {

class Client;

// What a world wants to hear of.
class ClientEvents {
 public:
  virtual ~ClientEvents() = default;
  virtual void on_delta(Client& client, const Delta& delta) = 0;
  virtual void on_turn(Client& client) = 0;
  virtual void on_end(Client& client, const Times& times) = 0;
};

class Client final : public OutputSink, public std::enable_shared_from_this<Client> {
 public:
  struct Answer {
    std::vector<TokenId> tokens;
    std::optional<Finish> finish;
  };
  // A request is one round; of a session each turn is.
  struct Round {
    std::vector<TokenId> input;
    uint32_t max_tokens = 1;
    std::optional<device::SlotSampling> sampling;  // absent: as before
    std::vector<Answer> answers;                   // [n]
  };

  Client(Request request_, std::optional<Language> language_, ClientEvents& events_)
      : request(std::move(request_)), language(language_), events(events_) {
    rounds.push_back({request.prompt, request.max_tokens, std::nullopt, std::vector<Answer>(request.n)});
  }

  Request request;
  std::optional<Language> language;
  ClientEvents& events;
  std::vector<Round> rounds;
  size_t now = 0;  // the round under way; past the last one: between two turns
  int n_ends = 0;
  uint64_t first_sequence = 0;  // sequence ids are given in order

  // What may happen to it besides its answer.
  bool deferred = false;   // not ready yet
  bool may_abort = false;  // somebody asked for that
  bool failed = false;     // somebody said that what it waits for failed
  bool closed = false;
  std::set<uint32_t> may_fault;  // sequences that were in steps with a fault

  bool is_between() const { return now == rounds.size(); }
  bool round_has_ended() const { return !is_between() && rounds[now].answers[0].finish.has_value(); }
  size_t n_tokens() const {  // known, of all its sequences
    size_t n = 0, answers = 0;
    for (const Round& round : rounds) {
      n += round.input.size();
      for (const Answer& answer : round.answers) answers += answer.tokens.size();
    }
    return n * request.n + answers;
  }

  void on_delta(const Delta& delta) override {
    REQUIRE(n_ends == 0);
    REQUIRE(now < rounds.size());
    REQUIRE(delta.index < request.n);
    Answer& answer = rounds[now].answers[delta.index];
    REQUIRE_FALSE(answer.finish.has_value());
    answer.tokens.insert(answer.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    if (delta.finish) answer.finish = *delta.finish;
    events.on_delta(*this, delta);
  }

  void on_turn(const Usage& usage, const Times&) override {
    REQUIRE(request.session);
    REQUIRE(n_ends == 0);
    REQUIRE(now < rounds.size());
    REQUIRE(rounds[now].answers[0].finish.has_value());
    REQUIRE(rounds[now].answers[0].finish->reason == FinishReason::stop);
    check_usage(usage);
    ++now;
    events.on_turn(*this);
  }

  void on_end(const Usage& usage, const Times& times) override {
    REQUIRE(n_ends == 0);
    ++n_ends;
    if (now < rounds.size() && (!request.session || round_has_ended())) {
      for (const Answer& answer : rounds[now].answers) REQUIRE(answer.finish.has_value());
      check_usage(usage);
    } else if (now < rounds.size()) {
      REQUIRE(rounds[now].answers[0].tokens.empty());  // a turn that had not begun
    }
    events.on_end(*this, times);
  }

  // Whether everything that it was told is right.
  void check(const Book& book) const;

 private:
  void check_usage(const Usage& usage) const {
    size_t n_prompt = 0, n_generated = 0;
    for (size_t i = 0; i <= now; ++i) {
      n_prompt += rounds[i].input.size();
      if (i < now) n_prompt += rounds[i].answers[0].tokens.size() - 1;  // a turn's last token is dropped
    }
    for (const Answer& answer : rounds[now].answers) n_generated += answer.tokens.size();
    CAPTURE(request.id);
    CAPTURE(now);
    CAPTURE(rounds.size());
    CAPTURE(n_generated);
    CAPTURE(n_ends);
    REQUIRE(usage.n_prompt == n_prompt);
    REQUIRE(usage.n_generated == n_generated);
    REQUIRE(usage.n_cached <= n_prompt);
  }
  void check_answer(const Book& book, Question question, const Answer& answer, uint32_t index) const;
};

inline void Client::check_answer(const Book& book, Question question, const Answer& answer, uint32_t index) const {
  const Finish& finish = *answer.finish;
  // Given up from outside: it gave what comes first of its answer, and was not at its end.
  const auto check_beginning = [&] {
    const Expectation beginning = book.answer(question, request.stop, answer.tokens.size());
    REQUIRE(answer.tokens == beginning.tokens);
    REQUIRE_FALSE(beginning.finish.has_value());
  };
  if (finish.reason == FinishReason::abort) {
    REQUIRE((may_abort || finish.deadline_exceeded));
    return check_beginning();
  }
  if (finish.reason == FinishReason::error && finish.message.starts_with("injected")) {
    REQUIRE(may_fault.contains(index));
    return check_beginning();
  }
  if (finish.reason == FinishReason::error && finish.message == "what it waited for failed") {
    REQUIRE(failed);
    return check_beginning();
  }
  const Expectation expected = book.answer(question, request.stop);
  REQUIRE(answer.tokens == expected.tokens);
  CAPTURE(finish.message);
  const FinishReason reason = expected.finish->reason;
  // A turn reports stop, whatever ended it.
  const bool turn = request.session && reason == FinishReason::length && finish.reason == FinishReason::stop;
  if (!turn) REQUIRE(finish.reason == reason);
  REQUIRE(finish.stop_token == expected.finish->stop_token);
}

inline void Client::check(const Book& book) const {
  CAPTURE(request.id);
  for (uint32_t index = 0; index < request.n; ++index) {
    CAPTURE(index);
    std::optional<Language> grammar = language;
    Question question{{}, request.sampling, 1, grammar ? &*grammar : nullptr};
    for (size_t i = 0; i <= now && i < rounds.size(); ++i) {
      CAPTURE(i);
      const Round& round = rounds[i];
      const Answer& answer = round.answers[index];
      if (!answer.finish) break;  // ended before this turn began
      if (round.sampling) question.sampling = *round.sampling;
      const uint64_t seed = question.sampling.seed;
      question.sampling.seed += index;
      question.prefix.insert(question.prefix.end(), round.input.begin(), round.input.end());
      question.max_tokens = round.max_tokens;
      check_answer(book, question, answer, index);
      question.sampling.seed = seed;
      question.prefix.insert(question.prefix.end(), answer.tokens.begin(), answer.tokens.end());
      if (!answer.tokens.empty()) question.prefix.pop_back();
    }
  }
}

}  // namespace heddle::engine::random_test
