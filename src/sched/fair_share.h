#pragma once
// Deficit round robin over tenants (M. Shreedhar and G. Varghese, SIGCOMM 1995), for sequences that hold a slot and
// blocks while they are served. Pure functions over what waits and runs in each line (LineState) and the line's account
// (FairAccount), two parallel arrays; fair_policy.h keeps the accounts.
//
// The contract. A unit is a row planned: a prompt token, a generated one, or one computed again after a preemption.
//  - Contention: a line has ready sequences and another line is active (runs, or has ready ones). Without it all
//    deficits are 0 and nothing is charged: a tenant that is alone owes nobody anything.
//  - A line's deficit is what it is owed; below 0 it is above its share. A plan under contention is one round:
//    a) A starved line (ready sequences, none running) is owed quantum * weight more, at most its head's cost in all:
//       nobody saves up for more than one sequence.
//    b) What was planned since the last round, less what a) gave, is owed to the running lines by weight. What one
//       cannot use (it is owed its head's cost already, or 0 if nothing waits there) goes to the others. So the
//       deficits of lines that run keep their sum but for a), and long contention pushes nobody down for nothing.
//    c) A line without work keeps no credit; its debt shrinks by quantum * weight.
//    d) Every row planned is charged to its line. A debt is at most max_debt * weight.
//  - Admission: of the lines with ready sequences the one with the largest deficit per weight, whatever its sign, so
//  that
//    free room is always used; one above its share never goes before a waiting one that is not.
//  - Exchange: a line is due when its deficit covers its head's cost. If there is no place for that head then, a line
//    above its share gives up its newest sequence, see payer().
//  - Pressure: the newest sequence of the line with the smallest deficit per weight gives way.
// So a starved line that is owed nothing yet is due in ceil(cost / (quantum * weight)) rounds; its head is admitted by
// the next plan at the latest, since the line whose place it takes is above its share and cannot take it back.
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
  int64_t carry = 0;           // remainder of the last division by the sum of weights, so that no row is lost
  uint64_t last_admitted = 0;  // number of the admission
};

struct FairRules {
  int64_t quantum = 32;
  // Per weight. At least the largest single charge (a whole prompt), or big prompts would cost less than small ones;
  // not much more, so that a line is held back for max_debt / quantum rounds at worst.
  int64_t max_debt = 0;
};

using Lines = std::span<const LineState>;
using Accounts = std::span<const FairAccount>;

bool contended(Lines lines);

// One round; `n_charged` rows were charged since the last one.
void begin_round(Lines lines, std::span<FairAccount> accounts, const FairRules& rules, int64_t n_charged);

// None: nothing is ready.
std::optional<uint32_t> next(Lines lines, Accounts accounts);

bool is_due(const LineState& line, const FairAccount& account);

// The line that gives up its newest sequence for the claimant's head: the one most above its share (smallest deficit
// per weight, below 0) of those that have more running per weight than the claimant even after the exchange, or as
// many. A claimant that runs nothing may take from any line above its share if there is none of these. So exchanges
// between lines that run only move towards balance and never back.
std::optional<uint32_t> payer(Lines lines, Accounts accounts, uint32_t claimant);

// Index into `running` of the newest sequence of the line with the smallest deficit per weight; the newest of all among
// equals.
size_t victim(Accounts accounts, std::span<const policy::Candidate> running);

}  // namespace heddle::sched::fair
