// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Answering requests of other members, in the helper thread or inside the calls of the program.
#include "base/arith.h"
#include "base/sys.h"
#include "quota/member.h"

#define TICK_NS UINT64_C(1000000000)  // how often a helper looks after the file

static _Thread_local const tide_quota* answering;  // the member whose on_ask runs on this thread

bool tide__quota_is_answering(const tide_quota* quota) { return answering == quota; }

bool tide__quota_is_rung(const tide_quota* quota, tide_quota_step most) {
  if (most == TIDE_QUOTA_PARK && tide__load_relaxed(&quota->is_postponed) != 0) return true;
  const tide__quota_slot* const slot = &quota->file.map->slots[tide__load_relaxed(&quota->slot)];
  return tide__load_relaxed(&slot->bell) != tide__load_relaxed(&quota->bell_seen);
}

// ---------------------------------------------------------------------------------------------------
// Requests

// What this member can give without going below its guarantee.
static uint64_t excess_locked(const tide_quota* quota) {
  const uint64_t used = quota->own[TIDE__WORD_USED];
  return used - tide__min(used, quota->own[TIDE__WORD_GUARANTEE]);
}

// Does a slot ask this member for something that it has not answered? A member that has ended asks nobody.
static bool ask_find_locked(tide_quota* quota, uint32_t slot, tide_quota_ask* ask, uint32_t* out_request) {
  const tide__quota_file* const file = &quota->file;
  const uint32_t own_slot = tide__load_relaxed(&quota->slot);
  uint64_t asked = 0;
  uint64_t request = 0;
  uint64_t missing = 0;
  uint64_t pid = 0;
  uint64_t priority = 0;
  if (slot == own_slot || !tide__quota_get(file, slot, TIDE__WORD_ASKED, &asked)) return false;
  if ((asked >> own_slot & 1) == 0 || !tide__quota_get(file, slot, TIDE__WORD_REQUEST, &request) ||
      request == 0 || request > UINT32_MAX || (uint32_t)request == quota->answered[slot])
    return false;
  if (!tide__quota_get(file, slot, TIDE__WORD_MISSING, &missing) ||
      !tide__quota_get(file, slot, TIDE__WORD_PID, &pid) ||
      !tide__quota_get(file, slot, TIDE__WORD_PRIORITY, &priority) || !tide__quota_slot_is_taken(file, slot))
    return false;
  *ask = (tide_quota_ask){ .bytes = tide__quota_bytes(tide__min(missing, excess_locked(quota))),
                           .step = request % 2 != 0 ? TIDE_QUOTA_PARK : TIDE_QUOTA_TRIM,
                           .priority = (int32_t)priority - TIDE_QUOTA_PRIORITY,
                           .pid = (int64_t)pid };
  tide__quota_get_name(file, slot, ask->name);
  *out_request = (uint32_t)request;
  return true;
}

// Calls the program, and counts what it gave.
static void ask_pass(tide_quota* quota, const tide_quota_ask* ask) {
  if (ask->bytes == 0 || quota->on_ask == NULL) return;
  tide__mutex_lock(&quota->lock);
  const uint64_t before = quota->own[TIDE__WORD_USED];
  tide__mutex_unlock(&quota->lock);
  answering = quota;
  quota->on_ask(quota->user, ask);
  answering = NULL;
  tide__mutex_lock(&quota->lock);
  const uint64_t after = quota->own[TIDE__WORD_USED];
  const uint64_t given = before - tide__min(before, after);
  if (given > 0)
    tide__quota_set_locked(quota, TIDE__WORD_GIVEN,
                           (quota->own[TIDE__WORD_GIVEN] + given) & TIDE__QUOTA_VALUE_MASK);
  tide__mutex_unlock(&quota->lock);
}

// Answers the request of a slot, if there is one. Returns whether it did.
static bool slot_answer(tide_quota* quota, uint32_t slot, tide_quota_step most) {
  tide_quota_ask ask;
  uint32_t request = 0;
  tide__mutex_lock(&quota->lock);
  const bool is_asked = ask_find_locked(quota, slot, &ask, &request);
  tide__mutex_unlock(&quota->lock);
  if (!is_asked || ask.step > most) return false;
  ask_pass(quota, &ask);
  tide__mutex_lock(&quota->lock);
  quota->answered[slot] = request;
  tide__store_seq(&quota->file.map->answers[tide__load_relaxed(&quota->slot)][slot], request);
  tide__mutex_unlock(&quota->lock);
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Limits and totals that were lowered

// What this member should free because all together hold more than the total. Lower priorities go first,
// then lower slots.
static uint64_t over_total_locked(tide_quota* quota) {
  const uint32_t own_slot = tide__load_relaxed(&quota->slot);
  uint64_t held = quota->own[TIDE__WORD_USED];
  uint64_t before = 0;
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) {
    if (slot == own_slot) continue;
    const uint64_t used = tide__quota_peek_locked(quota, slot, TIDE__WORD_USED);
    const uint64_t guarantee = tide__quota_peek_locked(quota, slot, TIDE__WORD_GUARANTEE);
    const uint64_t priority = tide__quota_peek_locked(quota, slot, TIDE__WORD_PRIORITY);
    const uint64_t own_priority = quota->own[TIDE__WORD_PRIORITY];
    const bool goes_first = priority < own_priority || (priority == own_priority && slot < own_slot);
    held += used;
    if (goes_first) before += used - tide__min(used, guarantee);
  }
  if (held <= quota->total || held - quota->total <= before) return 0;
  return tide__min(held - quota->total - before, excess_locked(quota));
}

static void overshoot_answer(tide_quota* quota) {
  tide_quota_ask ask = { .step = TIDE_QUOTA_PARK, .priority = TIDE_QUOTA_PRIORITY };
  tide__mutex_lock(&quota->lock);
  const uint64_t used = quota->own[TIDE__WORD_USED];
  const uint64_t limit = quota->own[TIDE__WORD_LIMIT];
  const uint64_t over_limit = used - tide__min(used, limit);
  ask.bytes = tide__quota_bytes(tide__max(over_limit, over_total_locked(quota)));
  tide__mutex_unlock(&quota->lock);
  ask_pass(quota, &ask);
}

// ---------------------------------------------------------------------------------------------------
// Answering

// The bell counts as answered from before the requests are read. What a thread that waits may not do is left
// for the next call.
void tide__quota_answer(tide_quota* quota, tide_quota_step most) {
  bool has_answered = false;
  if (atomic_exchange(&quota->is_answering, 1) != 0) return;
  tide__mutex_lock(&quota->lock);
  const tide_status status = tide__quota_refresh_locked(quota, "quota_poll");
  const tide__quota_slot* const own = &quota->file.map->slots[tide__load_relaxed(&quota->slot)];
  tide__store_relaxed(&quota->bell_seen, tide__load_seq(&own->bell));
  tide__mutex_unlock(&quota->lock);
  tide__store_relaxed(&quota->is_postponed, most == TIDE_QUOTA_PARK ? 0 : 1);
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS && status == TIDE_OK; slot++)
    has_answered = slot_answer(quota, slot, most) || has_answered;
  if (most == TIDE_QUOTA_PARK && status == TIDE_OK) overshoot_answer(quota);
  if (has_answered) tide__quota_wake(&quota->file);
  tide__store_seq(&quota->is_answering, 0);
}

// ---------------------------------------------------------------------------------------------------
// The helper

static void* helper_run(void* argument) {
  tide_quota* const quota = argument;
  while (tide__load_seq(&quota->is_ending) == 0) {
    tide__mutex_lock(&quota->lock);
    const bool is_good = tide__quota_refresh_locked(quota, "quota") == TIDE_OK;
    tide__atomic_u32* const bell = &quota->file.map->slots[tide__load_relaxed(&quota->slot)].bell;
    const uint32_t seen = is_good ? tide__load_seq(bell) : 0;
    tide__mutex_unlock(&quota->lock);
    if (is_good && seen != tide__load_relaxed(&quota->bell_seen)) tide__quota_answer(quota, TIDE_QUOTA_PARK);
    else if (is_good) tide__sys_shared_futex_wait_for(bell, seen, TICK_NS);
    else tide__sys_sleep_ns(TICK_NS / 10);
  }
  return NULL;
}

int tide__quota_helper_start(tide_quota* quota) {
  return tide__sys_thread_start(&quota->helper, helper_run, quota);
}

void tide__quota_helper_end(tide_quota* quota) {
  tide__store_seq(&quota->is_ending, 1);
  tide__quota_ring(&quota->file, tide__load_relaxed(&quota->slot));
  (void)pthread_join(quota->helper, NULL);
}
