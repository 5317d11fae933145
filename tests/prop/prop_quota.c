// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Model test of quotas: many members of one ledger, in one process, take, give, join and leave at random, and
// shares and the total change on the way. A simple model that knows everything says what each call must
// return. Nobody waits, so each answer is determined.
#include "quota/ledgers.h"

#define UNIT ((uint64_t)4096)

typedef struct model_member {
  tide_quota* quota;  // NULL: nobody
  uint64_t used;
  uint64_t guarantee;
  uint64_t limit;
} model_member;

typedef struct model {
  model_member members[TIDE_QUOTA_MEMBERS];
  uint64_t total;
  t_rng rng;
} model;

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// ---------------------------------------------------------------------------------------------------
// The rules

// What all others have: in use; at least their guarantee; and their guarantees alone.
static void others_sum(const model* it, const model_member* except, uint64_t* used, uint64_t* kept,
                       uint64_t* guaranteed) {
  *used = *kept = *guaranteed = 0;
  for (int i = 0; i < TIDE_QUOTA_MEMBERS; ++i) {
    const model_member* const member = &it->members[i];
    if (member->quota == NULL || member == except) continue;
    *used += member->used;
    *kept += larger(member->used, member->guarantee);
    *guaranteed += member->guarantee;
  }
}

static tide_status take_expected(const model* it, const model_member* member, uint64_t bytes) {
  const uint64_t after = member->used + bytes;
  uint64_t used = 0;
  uint64_t kept = 0;
  uint64_t guaranteed = 0;
  if (bytes == 0) return TIDE_OK;
  if (after > it->total || after > member->limit) return TIDE_ERR_LIMIT;
  others_sum(it, member, &used, &kept, &guaranteed);
  if (after <= member->guarantee) return used + after <= it->total ? TIDE_OK : TIDE_ERR_NO_MEMORY;
  if (kept + after <= it->total) return TIDE_OK;
  return guaranteed + after > it->total ? TIDE_ERR_LIMIT : TIDE_ERR_NO_MEMORY;
}

// ---------------------------------------------------------------------------------------------------
// Operations

static uint64_t size_random(model* it, uint64_t most) {
  return t_rng_below(&it->rng, most / UNIT + 1) * UNIT;
}

static void member_enter(model* it, model_member* member) {
  tide_quota_options options = member_options(ledger_path());
  uint64_t used = 0;
  uint64_t kept = 0;
  uint64_t guaranteed = 0;
  options.total_bytes = it->total;
  options.guarantee_bytes = size_random(it, it->total / 8);
  options.limit_bytes = t_rng_below(&it->rng, 2) == 0 ? TIDE_NO_LIMIT : it->total / 4;
  options.priority = (int32_t)t_rng_below(&it->rng, 5);
  others_sum(it, member, &used, &kept, &guaranteed);
  const bool fits = guaranteed + options.guarantee_bytes <= it->total;
  tide_quota* quota = NULL;
  T_STATUS(tide_quota_join(&options, &quota), fits ? TIDE_OK : TIDE_ERR_LIMIT);
  *member =
      (model_member){ .quota = quota, .guarantee = options.guarantee_bytes, .limit = options.limit_bytes };
}

static void member_exit(model_member* member) {
  tide_quota_leave(member->quota);
  *member = (model_member){ .quota = NULL };
}

// Exactly what fits is there.
static void room_check(const model* it, const model_member* member, uint64_t bytes) {
  const uint64_t room = tide_quota_room(member->quota);
  T_EQ(take_expected(it, member, room), TIDE_OK);
  T_EQ(bytes <= room, take_expected(it, member, bytes) == TIDE_OK);
}

static void member_take(model* it, model_member* member) {
  const uint64_t bytes = size_random(it, it->total / (1 + t_rng_below(&it->rng, 40)));
  const tide_status status = take_expected(it, member, bytes);
  if (t_rng_below(&it->rng, 4) == 0) room_check(it, member, bytes);
  T_STATUS(tide_quota_take(member->quota, bytes), status);
  if (status == TIDE_OK) member->used += bytes;
}

static void member_give(model* it, model_member* member) {
  const uint64_t bytes = size_random(it, member->used + 4 * UNIT);
  const bool fits = bytes <= member->used;
  T_STATUS(tide_quota_give(member->quota, bytes), fits ? TIDE_OK : TIDE_ERR_ARGUMENT);
  if (fits) member->used -= bytes;
}

// All members have the pid of this process, so all get the same shares.
static void shares_set(model* it) {
  tide_quota_shares shares = TIDE_QUOTA_SHARES_INIT;
  uint64_t count = 0;
  shares.set = TIDE_QUOTA_SET_GUARANTEE | TIDE_QUOTA_SET_LIMIT;
  shares.guarantee_bytes = size_random(it, it->total / 16);
  shares.limit_bytes = shares.guarantee_bytes + size_random(it, it->total);
  for (int i = 0; i < TIDE_QUOTA_MEMBERS; ++i) count += it->members[i].quota != NULL;
  const bool fits = count * shares.guarantee_bytes <= it->total;
  const tide_status status = count == 0 ? TIDE_ERR_HANDLE : fits ? TIDE_OK : TIDE_ERR_LIMIT;
  T_STATUS(tide_quota_set_shares(ledger_path(), getpid(), &shares), status);
  for (int i = 0; i < TIDE_QUOTA_MEMBERS && status == TIDE_OK; ++i) {
    it->members[i].guarantee = shares.guarantee_bytes;
    it->members[i].limit = shares.limit_bytes;
  }
}

static void total_set(model* it) {
  const uint64_t total = UNIT + size_random(it, 200 * MIB);
  uint64_t used = 0;
  uint64_t kept = 0;
  uint64_t guaranteed = 0;
  others_sum(it, NULL, &used, &kept, &guaranteed);
  T_STATUS(tide_quota_set_total(ledger_path(), total), guaranteed <= total ? TIDE_OK : TIDE_ERR_LIMIT);
  if (guaranteed <= total) it->total = total;
}

static void operation_run(model* it) {
  model_member* const member = &it->members[t_rng_below(&it->rng, TIDE_QUOTA_MEMBERS)];
  const uint64_t kind = t_rng_below(&it->rng, 1000);
  if (kind == 0) total_set(it);
  else if (kind == 1) shares_set(it);
  else if (member->quota == NULL) member_enter(it, member);
  else if (kind < 30) member_exit(member);
  else if (kind < 500) member_give(it, member);
  else member_take(it, member);
}

static void all_check(const model* it) {
  const ledger_view view = ledger_look(ledger_path());
  uint64_t used = 0;
  uint64_t kept = 0;
  uint64_t guaranteed = 0;
  others_sum(it, NULL, &used, &kept, &guaranteed);
  T_EQ(view.ledger.total_bytes, it->total);
  T_EQ(view.ledger.held_bytes, used);
  T_EQ(view.ledger.guarantee_bytes, guaranteed);
  T_CHECK(!view.ledger.is_damaged);
}

T_TEST(prop_quota__every_answer_is_that_of_the_model) {
  model it = { .total = 100 * MIB, .rng = t_rng_new(3) };
  T_OK(tide_quota_make(ledger_path(), it.total));
  for (size_t i = 0; i < t_scaled_alone(200000); ++i) {
    operation_run(&it);
    if (i % 64 == 0) all_check(&it);
  }
  for (int i = 0; i < TIDE_QUOTA_MEMBERS; ++i) member_exit(&it.members[i]);
  all_check(&it);
  ledger_end();
}
