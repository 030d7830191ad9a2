#pragma once
// Deficit round robin over tenants (M. Shreedhar and G. Varghese, SIGCOMM 1995), for sequences that hold a place and
// blocks while they are served. Pure functions over what waits and runs in each line (LineState) and the line's account
// (FairAccount), two parallel arrays; fair_policy.h keeps the accounts.
//
// The contract. A unit is a row planned: a prompt token, a generated one, or one computed again after a preemption.
//  - Contention: a line has ready sequences and another line is active (runs, or has ready ones). Without it all
//    accounts are 0 and nothing is charged: a tenant that is alone owes nobody anything, and old debts are forgotten.
//  - A line's deficit is what it is owed; below 0 it is above its share. Each plan under contention is one round. The
//    rows planned since the last round are owed to the active lines by weight, and every row planned is charged to its
//    line: deficits keep their sum, and long contention pushes nobody down for nothing. A line that has nothing more to
//    start is owed no more than its running sequences lack; what it cannot use goes to the others.
//  - A line is starved if it has ready sequences and runs none. One that is starved and not above its share has a claim
//    that grows by quantum * weight a round, up to its head's cost, and ends when one of its sequences is admitted. The
//    claim is a promise beside the account, not income: what is computed for it is charged like everything else, so
//    that a tenant of many short requests gets its share and no more.
//  - A line is due when its claim, or its deficit, covers its head's cost. Of a cost above the rows that a step surely
//    has for it the claim must cover only what the rest's steps, of quantum * weight rows each, do not make up for.
//  - Admission: starved lines that are due, in turns; other lines that are due, the one that runs least per weight
//    first; then the line with the largest deficit per weight, whatever its sign. So free room is always used, and one
//    above its share never goes before a waiting one that is not.
//  - Exchange: if there is no place for a due head, a line that was served more gives up its newest sequence, see
//    yielding(). Not one that was admitted by the same plan, and not a line's only one before it had a turn: its first
//    token and quantum * weight more rows. Else starved lines would take the place from each other before either got
//    on.
//  - Rows: sequences leave the rows that are promised to others in this step, see promise().
//  - Pressure: the newest sequence of the line with the smallest deficit per weight gives way.
//
// So a starved line that is not above its share is due in at most ceil(cost / (quantum * weight)) rounds, its head is
// admitted by the next plan, since those whose place it takes cannot take it back, and its first token is in the plan
// ceil(cost / (quantum * weight)) + 1 after it came, counting that one, if sum(quantum * weight) fits in a step and
// some line that was served more runs two sequences, or one that had its turn. Of several lines due at once each waits
// for the exchanges of those before it, one a plan; and a prompt of several steps loses a step to each starved line's
// head that comes to be due meanwhile.
// Lines that run exchange places towards balance only: with demand unchanged, exchanges among them end, and the rest of
// fairness is who is admitted when a place falls free. Lines whose share is less than a place take turns, none shorter
// than a quantum.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "sched/scheduling_policy.h"

namespace heddle::sched::fair {

constexpr uint32_t kMaxWeight = 10'000;  // products of a deficit and two weights stay far below 2^63

struct FairAccount {
  uint32_t weight = 1;         // 1 ... kMaxWeight
  int64_t deficit = 0;         // rows
  int64_t claim = 0;           // rows; of a starved line
  int64_t planned = 0;         // rows charged since the round began
  int64_t carry = 0;           // remainder of the last division by the sum of weights, so that no row is lost
  uint64_t last_admitted = 0;  // number of the admission
  int64_t promised = 0;        // rows that others leave to it in this plan
  int64_t turn = 0;            // rows that its sequence will have after its first token before it may be exchanged
  bool admitted = false;       // since the round began
  bool caught_up = false;      // when the round began, its running sequences lacked one row each at most
  bool settled = false;        // ... and had all had a token since they were admitted
};

struct FairRules {
  int64_t quantum = 32;
  // Per weight; credit too. At least the largest charge of one admission (the longest sequence), or long prompts would
  // cost less than short ones; little more, so that a tenant is held back for the time of one such sequence and a few
  // full steps, not for hours.
  int64_t max_debt = 0;
  int64_t step_rows = 0;    // of a step
  int64_t first_chunk = 0;  // rows of a step that are left beside sequences that decode; at least 1
};

using Lines = std::span<const LineState>;
using Accounts = std::span<const FairAccount>;

bool contended(Lines lines);

// One round. `first`: contention begins.
void begin_round(Lines lines, std::span<FairAccount> accounts, const FairRules& rules, bool first = false);

void charge(FairAccount& account, int64_t rows);
void admitted(FairAccount& account, const FairRules& rules, uint64_t number);

bool is_due(const LineState& line, const FairAccount& account, const FairRules& rules);

// None: nothing is ready.
std::optional<uint32_t> next(Lines lines, Accounts accounts, const FairRules& rules);

// Sets what is promised to each line in a plan, and gives the sum, at most a step's rows: to the claimant (a
// starved line that is due and comes next), its head's cost or the first chunk of it; to a line that runs, quantum *
// weight or what it is owed, as far as its sequences lack rows; less where that is more than a step has left, but by
// weight.
int64_t promise(Lines lines, std::span<FairAccount> accounts, const FairRules& rules, std::optional<uint32_t> claimant);

// Most of the `budget` rows left in the step that the line may take: those promised to others stay, but for one row.
// `promised`: what is left of the sum.
int64_t rows_for(const FairAccount& account, int64_t promised, int64_t budget);

// Who of the running gives its place to the claimant's head: the newest of the line with the smallest deficit per
// weight, smaller than the claimant's, of the lines that even then run at least as many per weight as the claimant. A
// starved claimant may take from any line served more if there is none of these.
std::optional<size_t> yielding(Lines lines, Accounts accounts, uint32_t claimant,
                               std::span<const policy::Candidate> running);

// The newest sequence of the line with the smallest deficit per weight; the newest of all among equals.
size_t victim(Accounts accounts, std::span<const policy::Candidate> running);

}  // namespace heddle::sched::fair
