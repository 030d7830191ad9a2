// What the clients of a random world do: they ask, give more input, close, abort, and hear of the answers.
#include "random_world.h"
#include "sched/admission.h"

namespace heddle::engine::random_test {

namespace {
constexpr uint32_t kMostLive = 12;
constexpr uint32_t kMostSessions = 4;
}  // namespace

device::SlotSampling World::invent_sampling() {
  device::SlotSampling sampling;
  sampling.seed = upto(2);
  sampling.end_tokens = {0, 1};
  if (chance(0.2)) sampling.end_tokens.push_back(static_cast<TokenId>(upto(kVocabulary - 1)));
  if (chance(0.3)) sampling.min_tokens = upto(10);
  return sampling;
}

// Prompts come from few families, so that prefixes meet.
std::vector<TokenId> World::invent_prompt(uint32_t n_most) {
  const uint32_t n = 1 + upto(std::min(n_most, chance(0.2) ? n_most : 20u) - 1);
  const auto family = static_cast<TokenId>(upto(2));
  std::vector<TokenId> prompt;
  for (uint32_t i = 0; i < n; ++i) prompt.push_back((family + static_cast<TokenId>(i)) % kVocabulary);
  if (chance(0.5)) prompt.back() = static_cast<TokenId>(upto(kVocabulary - 1));
  return prompt;
}

Request World::invent() {
  const sched::Config& c = bench_.config.scheduler;
  uint32_t most = std::min(c.max_model_len - 1, c.n_blocks * c.block_size);
  while (most > 1 && sched::demand_of(most, c).never_fits()) --most;
  const auto serial = clients_.size();
  Request request = make_request(chance(0.1) ? fmt::format("g{}-{}", serial / 10, serial) : fmt::format("r{}", serial),
                                 invent_prompt(most), 1);
  if (!clients_.empty() && chance(0.3)) {  // the next turn of an earlier chat
    const Client& before =
        *clients_[clients_.size() - 1 - upto(std::min<uint32_t>(30, static_cast<uint32_t>(serial) - 1))];
    std::vector<TokenId> turn = before.rounds[0].input;
    const std::vector<TokenId>& answer = before.rounds[0].answers[0].tokens;
    turn.insert(turn.end(), answer.begin(), answer.end());
    if (turn.size() <= most) request.prompt = std::move(turn);
  }
  const uint32_t n_left = c.max_model_len - static_cast<uint32_t>(request.prompt.size());
  request.max_tokens = 1 + upto((chance(0.5) ? n_left : std::min(n_left, 16u)) - 1);
  request.n = chance(0.3) ? 1 + upto(3) : 1;
  request.sampling = invent_sampling();
  request.cache_salt = chance(0.2) ? "salt" : "";
  request.stop.ignore_eos = chance(0.5);
  if (chance(0.3)) request.stop.token_ids = {static_cast<TokenId>(upto(kVocabulary - 1))};
  request.priority = static_cast<int32_t>(upto(4)) - 2;
  request.tenant = std::string(1, static_cast<char>('a' + upto(2)));
  if (habits_.deadlines && chance(0.6)) {
    if (chance(0.6)) request.deadlines.total = time() + std::chrono::milliseconds(1 + upto(120));
    if (chance(0.6)) request.deadlines.first_token = time() + std::chrono::milliseconds(1 + upto(40));
  }
  if (habits_.deferrals && chance(0.3)) request.deferral = static_cast<sched::Deferral>(1 + upto(4));
  if (habits_.sessions && chance(0.3)) {
    const auto n = std::count_if(live_.begin(), live_.end(), [](const Client* x) { return x->request.session; });
    request.session = n < kMostSessions;
    if (request.session) {
      request.n = 1;
      request.prompt.resize(std::min<size_t>(request.prompt.size(), 1 + most / 4));
      request.max_tokens = 1 + upto(std::min(7u, n_left - 1));
    }
  }
  return request;
}

void World::submit(Request request) {
  std::optional<Language> language;
  if (habits_.grammars && !request.session && chance(0.5)) {
    language = Language{.seed = upto(3), .breadth = 1 + upto(2)};
    if (chance(0.2)) language->dead_ends = 60;
    if (chance(0.2)) language->surprises = 60;
    request.make_masker = [l = *language] { return std::make_unique<LanguageMasker>(l); };
  }
  auto client = std::make_shared<Client>(request, language, *this);
  client->deferred = request.deferral != sched::Deferral::none;
  client->first_sequence = sequences_.size() + 1;
  n_submitted_ += request.n;
  const uint32_t n = request.n;
  const auto accepted = engine().submit(std::move(request), client);
  if (!engine().healthy()) {
    REQUIRE_FALSE(accepted.has_value());
    return;
  }
  REQUIRE_MESSAGE(accepted.has_value(), accepted.error().message);
  for (uint32_t i = 0; i < n; ++i) sequences_.push_back({client.get(), i});
  for (uint32_t i = 0; device_lost_ && i < n; ++i) client->may_fault.insert(i);
  if (client->deferred) ++tally_["deferred"];
  if (client->language) ++tally_["with a grammar"];
  if (n > bench_.config.scheduler.max_num_seqs) ++tally_["more answers than slots"];
  live_.push_back(client.get());
  clients_.push_back(std::move(client));
}

void World::submit() {
  Request request = invent();
  if (chance(0.02)) {  // nothing of it is kept
    request.max_tokens = bench_.config.scheduler.max_model_len;
    if (chance(0.5) && !live_.empty()) request.id = any_live()->request.id;
    n_submitted_ += request.n;
    REQUIRE_FALSE(engine().submit(request, std::make_shared<Recorder>()).has_value());
    ++tally_["refused"];
    return;
  }
  // Equal prompts side by side, whose blocks merge.
  for (uint32_t i = !request.session && chance(0.15) ? upto(2) : 0; i > 0; --i) {
    Request twin = request;
    twin.id += fmt::format("twin{}", i);
    twin.sampling.seed += i;
    submit(std::move(twin));
  }
  submit(std::move(request));
}

Client* World::any_live() { return live_.empty() ? nullptr : live_[upto(static_cast<uint32_t>(live_.size()) - 1)]; }

Client* World::any_session() {
  Client* found = nullptr;
  uint32_t n = 0;
  for (Client* client : live_)
    if (client->request.session && upto(n++) == 0) found = client;
  return found;
}

void World::act() {
  for (const Client* client : live_) {
    REQUIRE(engine().is_live(client->request.id));
  }
  if (live_.size() < kMostLive && chance(0.4)) submit();
  if (Client* client = any_live(); client && chance(0.05)) abort(*client);
  for (size_t i = 0; i < live_.size(); ++i)  // rare otherwise
    if (has_attached(*live_[i]) && chance(0.05)) abort(*live_[i]);
  if (Client* client = any_session()) {
    if (chance(0.15)) append(*client);
    if (chance(0.03)) close(*client);
  }
  if (habits_.deferrals && chance(0.2)) {
    for (Client* client : live_) {
      if (!client->deferred || chance(0.7)) continue;
      if (chance(0.8)) {
        make_ready(*client);
      } else {
        client->failed = true;
        client->deferred = false;
        engine().fail(client->request.id, "what it waited for failed");
        due_.push_back({client->shared_from_this(), turn_ + kTurnsToEnd});
        ++tally_["failed while deferred"];
      }
      break;
    }
  }
  if (chance(0.002)) {
    ++tally_["abort_all"];
    abort_all("");
  }
  if (chance(0.005)) abort_all(fmt::format("g{}", clients_.size() / 10));
}

// Of one API request's parts, or all. Those that have ended already, without their client's knowledge, may not count.
void World::abort_all(const std::string& prefix) {
  uint32_t n_most = 0, n_least = 0;
  for (Client* client : live_) {
    if (!prefix.empty() && !client->request.id.starts_with(prefix + "-")) continue;
    ++n_most;
    n_least += !client->may_abort && !client->failed && !client->closed && n_aborting_ == 0;
    client->may_abort = true;
  }
  uint32_t n = 0;
  if (prefix.empty()) n = engine().abort_all();
  for (Client* client : live_)
    if (!prefix.empty() && client->request.id.starts_with(prefix + "-")) n += engine().abort(client->request.id);
  REQUIRE(n >= n_least);
  REQUIRE(n <= n_most);
}

// From within a sink: anything that a client may do.
void World::act_on(Client& client) {
  if (client.request.session && chance(0.3)) return append(client);
  if (client.request.session && chance(0.3)) return close(client);
  abort(client);
}

// A turn whose end the engine knows, and its client not yet.
bool World::turn_has_just_ended(const Client& client) const {
  if (!client.request.session || client.n_ends > 0 || client.is_between() || client.round_has_ended()) return false;
  const SequenceRecord& of = record(client, 0);
  if (!of.sequence || of.round != client.now) return false;
  return of.sequence->state == sched::SequenceState::parked || of.sequence->deferral == sched::Deferral::input;
}

// Sequences that wait for the prompt that another one computes.
bool World::has_attached(const Client& client) const {
  const sched::Sequence* owner = record(client, 0).sequence;
  return client.n_ends == 0 && client.request.n > 1 && owner != nullptr && !owner->forks.empty();
}

void World::count_states(const Client& client) {
  using State = sched::SequenceState;
  if (client.deferred) ++tally_["aborted while deferred"];
  if (turn_has_just_ended(client)) ++tally_["aborted at a turn's end"];
  for (uint32_t i = 0; i < client.request.n; ++i) {
    const sched::Sequence* s = record(client, i).sequence;
    if (!s) {
      if (!client.deferred) ++tally_[has_attached(client) ? "aborted while attached" : "aborted while waiting"];
    } else if (s->state == State::parked) {
      ++tally_["aborted while parked"];
    } else if (s->state == State::preempted) {
      ++tally_[s->n_in_flight > 0 ? "aborted while preempted, in flight" : "aborted while preempted"];
    } else if (s->state == State::running) {
      if (s->masked && s->n_placeholders > 1) ++tally_["aborted while held back for a mask"];
      if (!s->is_prefilling())
        ++tally_["aborted while decoding"];
      else if (s->n_computed > 0)
        ++tally_["aborted between chunks"];
    }
  }
}

void World::abort(Client& client) {
  const bool live = client.n_ends == 0;
  if (live) {
    count_states(client);
    due_.push_back({client.shared_from_this(), turn_ + kTurnsToEnd});
    client.may_abort = true;
    client.closed = true;
  }
  REQUIRE((engine().abort(client.request.id) || !live));
}

void World::append(Client& client) {
  if (over_) return;
  const sched::Config& c = bench_.config.scheduler;
  Turn turn;
  turn.tokens = invent_prompt(6);
  turn.max_tokens = 1 + upto(7);
  if (chance(0.3)) turn.sampling = invent_sampling();
  uint64_t longest = turn.tokens.size() + turn.max_tokens;
  for (const Client::Round& round : client.rounds) longest += round.input.size() + round.max_tokens;
  const uint64_t before = engine().snapshot().submitted;
  const auto accepted = engine().append(client.request.id, turn);
  const uint64_t n_counted = engine().snapshot().submitted - before;
  n_submitted_ += n_counted;
  if (!accepted) {
    REQUIRE(n_counted == 1);
    const uint64_t room = std::min<uint64_t>(c.max_model_len, uint64_t{c.n_blocks} * c.block_size);
    if (client.closed || client.n_ends > 0 || longest + c.n_lookahead > room || !engine().healthy()) return;
    // It has ended, and its client is about to hear that.
    due_.push_back({client.shared_from_this(), turn_ + kTurnsToEnd});
    ++tally_["input for what has just ended"];
    return;
  }
  REQUIRE_FALSE(client.closed);
  if (n_counted == 1) {
    ++tally_[client.is_between() ? "turns after an answer" : "turns given during one"];
    client.rounds.push_back({turn.tokens, turn.max_tokens, turn.sampling, std::vector<Client::Answer>(1)});
    return;
  }
  ++tally_["prompts that grew"];
  REQUIRE(client.now == 0);
  REQUIRE(record(client, 0).sequence == nullptr);
  Client::Round& round = client.rounds[0];
  round.input.insert(round.input.end(), turn.tokens.begin(), turn.tokens.end());
  round.max_tokens = turn.max_tokens;
  if (turn.sampling) round.sampling = turn.sampling;
}

void World::close(Client& client) {
  if (client.n_ends == 0 && !client.closed)
    ++tally_[client.is_between()           ? "closed between turns"
             : turn_has_just_ended(client) ? "closed at a turn's end"
                                           : "closed during a turn"];
  client.closed = true;
  engine().close_session(client.request.id);
}

void World::make_ready(Client& client) {
  if (!client.deferred) return;
  client.deferred = false;
  engine().ready(client.request.id);
  ++tally_["made ready"];
}

void World::check_deadline(const Client& client) {
  const Deadlines& deadlines = client.request.deadlines;
  bool answered = false;
  for (const Client::Answer& answer : client.rounds[0].answers) answered |= !answer.tokens.empty();
  REQUIRE(client.now == 0);
  if (deadlines.total && time() >= *deadlines.total) return;
  if (deadlines.first_token && !answered && time() >= *deadlines.first_token) return;
  // It was given up before: it waited, and even if everybody's tokens were before it, there must be too little time.
  REQUIRE(bench_.config.rates.has_value());
  REQUIRE(record(client, 0).sequence == nullptr);
  REQUIRE_FALSE(client.deferred);
  size_t n_rows = 0;
  for (const Client* other : live_) n_rows += other->n_tokens();
  for (const Client* other : just_ended_) n_rows += other->n_tokens();
  const MonotonicTime deadline =
      std::min(deadlines.total.value_or(MonotonicTime::max()), deadlines.first_token.value_or(MonotonicTime::max()));
  const double slowest = static_cast<double>(n_rows) / (2 * bench_.config.rates->prefill);
  REQUIRE(slowest > seconds(deadline - time()));
  ++tally_["given up before their deadline"];
}

void World::on_delta(Client& client, const Delta& delta) {
  if (delta.finish && delta.finish->deadline_exceeded) check_deadline(client);
  if (delta.finish && delta.finish->reason == FinishReason::abort && n_aborting_ > 0) client.may_abort = true;
  if (delta.finish && delta.finish->reason == FinishReason::error) {
    const std::string& message = delta.finish->message;
    if (message == "injected at launch") ++tally_["faults at launch"];
    if (message == "injected at wait") ++tally_["faults at wait"];
    if (message == "injected: the device is lost") ++tally_["faults of the device"];
    if (message.starts_with("the model gave")) ++tally_["faults at commit"];
    if (message.ends_with("not of the grammar")) ++tally_["tokens outside the grammar"];
  }
  if (!habits_.busy_sinks || over_) return;
  for (size_t i = 0; i < live_.size(); ++i)
    if (live_[i] != &client && turn_has_just_ended(*live_[i]) && chance(0.5)) act_on(*live_[i]);
  if (chance(0.01)) act_on(client);
  if (Client* other = any_live(); other && chance(0.005)) act_on(*other);
  if (live_.size() < kMostLive && chance(0.01)) submit();
}

void World::on_turn(Client& client) {
  ++tally_["turns"];
  if (over_) return;
  if (chance(0.3)) append(client);
  if (chance(0.05)) close(client);
  if (habits_.busy_sinks && chance(0.03)) abort(client);
}

void World::on_end(Client& client, const Times& times) {
  if (times.scheduled != MonotonicTime{}) REQUIRE(times.queued <= times.scheduled);
  client.check(book_);
  std::erase(live_, &client);
  just_ended_.push_back(&client);
}

}  // namespace heddle::engine::random_test
