// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Waiting for memory that others hold. One thread of the member asks them, in stages: each stage is a step
// and a priority, and its members are told by their bells. The next stage begins when all have answered, or
// when its share of the time is over; so a member that is stuck is passed over.
#include "base/arith.h"
#include "base/error.h"
#include "base/sys.h"
#include "quota/member.h"

#define SLICE_NS UINT64_C(10000000)        // how often it looks for members that have ended
#define PAUSE_NS UINT64_C(50000000)        // between two rounds of requests
#define PATIENCE_NS UINT64_C(10000000000)  // with one stage, at most

// ---------------------------------------------------------------------------------------------------
// Stages

static uint64_t excess_locked(tide_quota* quota, uint32_t slot) {
  const uint64_t used = tide__quota_peek_locked(quota, slot, TIDE__WORD_USED);
  const uint64_t guarantee = tide__quota_peek_locked(quota, slot, TIDE__WORD_GUARANTEE);
  return used > guarantee ? used - guarantee : 0;
}

// Stages are ordered by this number. 0: the member is not asked in this step.
static uint32_t stage_of_locked(tide_quota* quota, uint32_t slot, uint32_t step) {
  const uint64_t priority = tide__quota_peek_locked(quota, slot, TIDE__WORD_PRIORITY);
  if (slot == tide__load_relaxed(&quota->slot) || excess_locked(quota, slot) == 0) return 0;
  if (step == TIDE_QUOTA_PARK && priority > quota->own[TIDE__WORD_PRIORITY]) return 0;
  return step << 16 | (uint32_t)priority;
}

// The next stage that has members; 0: none.
static uint32_t stage_after_locked(tide_quota* quota, uint32_t stage) {
  uint32_t next = 0;
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) {
    for (uint32_t step = TIDE_QUOTA_TRIM; step <= TIDE_QUOTA_PARK; step++) {
      const uint32_t found = stage_of_locked(quota, slot, step);
      if (found > stage && (next == 0 || found < next)) next = found;
    }
  }
  return next;
}

static uint32_t stages_left_locked(tide_quota* quota, uint32_t stage) {
  uint32_t count = 0;
  for (; stage != 0 && count < 2 * TIDE_QUOTA_MEMBERS; count++) stage = stage_after_locked(quota, stage);
  return count;
}

static bool round_is_answered_locked(tide_quota* quota) {
  const uint32_t own_slot = tide__load_relaxed(&quota->slot);
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) {
    if ((quota->round.asked >> slot & 1) == 0 || excess_locked(quota, slot) == 0) continue;
    if (tide__load_seq(&quota->file.map->answers[slot][own_slot]) != quota->round.request) return false;
  }
  return true;
}

// The number of the request is written last.
static void stage_ask_locked(tide_quota* quota, uint32_t stage, uint64_t missing) {
  tide__quota_round* const round = &quota->round;
  round->stage = stage;
  round->asked = 0;
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) {
    if (stage_of_locked(quota, slot, stage >> 16) == stage) round->asked |= UINT64_C(1) << slot;
  }
  quota->last_request += 2;
  if (quota->last_request == 0) quota->last_request = 2;
  round->request = quota->last_request | (stage >> 16 == TIDE_QUOTA_PARK ? 1u : 0u);
  tide__quota_set_locked(quota, TIDE__WORD_MISSING, tide__min(missing, TIDE__QUOTA_MOST));
  tide__quota_set_locked(quota, TIDE__WORD_ASKED, round->asked);
  tide__quota_set_locked(quota, TIDE__WORD_REQUEST, round->request);
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) {
    if ((round->asked >> slot & 1) != 0) tide__quota_ring(&quota->file, slot);
  }
}

// Goes on to the next stage if this one is over. After the last stage it begins again, after a pause.
static void round_advance_locked(tide_quota* quota, uint64_t missing, uint64_t now_ns, uint64_t end_ns) {
  tide__quota_round* const round = &quota->round;
  if (now_ns < round->due_ns && (round->stage == 0 || !round_is_answered_locked(quota))) return;
  const uint32_t stage = stage_after_locked(quota, round->stage);
  if (stage == 0) {
    *round = (tide__quota_round){ .due_ns = now_ns + PAUSE_NS };
    return;
  }
  stage_ask_locked(quota, stage, missing);
  round->due_ns = now_ns + tide__min((end_ns - now_ns) / (stages_left_locked(quota, stage) + 1), PATIENCE_NS);
}

// ---------------------------------------------------------------------------------------------------
// Waiting

static void wait_begin(tide_quota* quota, uint64_t units) {
  tide__mutex_lock(&quota->lock);
  if (quota->waiters++ == 0) {
    tide__quota_set_locked(quota, TIDE__WORD_ALIVE, tide__quota_now_ms());
    tide__quota_set_locked(quota, TIDE__WORD_SINCE, tide__quota_now_ms());
  }
  tide__quota_set_locked(quota, TIDE__WORD_WAITS, quota->own[TIDE__WORD_WAITS] + 1);
  tide__quota_set_locked(quota, TIDE__WORD_WANT,
                         tide__min(quota->own[TIDE__WORD_WANT] + units, TIDE__QUOTA_MOST));
  tide__mutex_unlock(&quota->lock);
}

// Others may have left memory for this member, so they are woken.
static void wait_end(tide_quota* quota, uint64_t units, bool drives) {
  tide__mutex_lock(&quota->lock);
  const uint64_t want = quota->own[TIDE__WORD_WANT];
  quota->waiters--;
  tide__quota_set_locked(quota, TIDE__WORD_WANT, quota->waiters > 0 ? want - tide__min(want, units) : 0);
  if (drives) {
    quota->is_driven = false;
    quota->round = (tide__quota_round){ .stage = 0 };
    tide__quota_set_locked(quota, TIDE__WORD_ASKED, 0);
    tide__quota_set_locked(quota, TIDE__WORD_MISSING, 0);
  }
  if (quota->waiters == 0) tide__quota_set_locked(quota, TIDE__WORD_SINCE, 0);
  tide__quota_wake(&quota->file);
  tide__mutex_unlock(&quota->lock);
}

// What the other threads of this member wait for.
static uint64_t others_want_locked(const tide_quota* quota, uint64_t bytes) {
  const uint64_t want = quota->own[TIDE__WORD_WANT];
  return want - tide__min(want, tide__quota_units_up(bytes));
}

// Tries once more, and asks if that fails. `drives` is set if this thread makes the requests. Returns the
// count of changes from before, to wait for the next.
static tide__quota_fit wait_step(tide_quota* quota, uint64_t bytes, uint64_t end_ns, bool* drives,
                                 uint32_t* out_changed) {
  uint64_t missing = 0;
  tide__quota_fit fit = TIDE__QUOTA_FULL;
  tide__mutex_lock(&quota->lock);
  const tide_status status = tide__quota_refresh_locked(quota, "quota_take");
  *out_changed = tide__load_seq(&quota->file.map->changed);
  if (status == TIDE_OK) {
    tide__quota_set_locked(quota, TIDE__WORD_ALIVE, tide__quota_now_ms());
    (void)tide__quota_reap_locked(quota);
    fit = tide__quota_try_locked(quota, bytes, &missing);
  }
  const uint64_t now_ns = tide__sys_clock_ns();
  if (!quota->is_driven) *drives = quota->is_driven = true;
  if (fit == TIDE__QUOTA_FULL && status == TIDE_OK && *drives && now_ns < end_ns)
    round_advance_locked(quota, missing + others_want_locked(quota, bytes), now_ns, end_ns);
  tide__mutex_unlock(&quota->lock);
  return fit;
}

// Who reads the count of changes before this does not sleep after it.
void tide__quota_stop(tide_quota* quota) {
  tide__store_seq(&quota->is_stopped, 1);
  tide__quota_wake(&quota->file);
}

// Requests to this member are answered meanwhile, so that two members that wait for each other get on.
// Parking is left for later, because it takes long.
tide__quota_fit tide__quota_wait(tide_quota* quota, uint64_t bytes) {
  const uint64_t begin_ns = tide__sys_clock_ns();
  const uint64_t end_ns = quota->wait_ns < UINT64_MAX - begin_ns ? begin_ns + quota->wait_ns : UINT64_MAX;
  tide__quota_fit fit = TIDE__QUOTA_FULL;
  bool drives = false;
  wait_begin(quota, tide__quota_units_up(bytes));
  for (;;) {
    uint32_t changed = 0;
    fit = wait_step(quota, bytes, end_ns, &drives, &changed);
    const bool is_over = tide__load_seq(&quota->is_stopped) != 0 || tide__sys_clock_ns() >= end_ns;
    if (fit != TIDE__QUOTA_FULL || is_over) break;
    if (!quota->has_helper && tide__quota_is_rung(quota, TIDE_QUOTA_TRIM))
      tide__quota_answer(quota, TIDE_QUOTA_TRIM);
    const uint64_t now_ns = tide__sys_clock_ns();
    const uint64_t left_ns = end_ns - tide__min(now_ns, end_ns);
    tide__sys_shared_futex_wait_for(&quota->file.map->changed, changed, tide__min(SLICE_NS, left_ns));
  }
  wait_end(quota, tide__quota_units_up(bytes), drives);
  return fit;
}
