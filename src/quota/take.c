// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// One attempt to take bytes, and the members that have ended.
#include "base/arith.h"
#include "base/sys.h"
#include "quota/member.h"

#define CONFLICT_TRIES \
  200                  // about two milliseconds: a claim lasts less than one, unless its process is stopped
#define STUCK_MS 3000  // a member that waits looks every ten milliseconds

// What the others have, added up.
typedef struct quota_sums {
  uint64_t held;  // in use or claimed
  uint64_t kept;  // the same, at least the guarantee of each; and what members that go first wait for
  uint64_t used;  // held without claims
  uint64_t kept_unclaimed;  // kept without claims
  uint64_t guaranteed;
  uint32_t first_claim;  // the lowest slot with a claim; UINT32_MAX: none
} quota_sums;

uint64_t tide__quota_peek_locked(tide_quota* quota, uint32_t slot, tide__quota_word word) {
  uint64_t value = 0;
  if (tide__quota_get(&quota->file, slot, word, &value)) quota->seen[slot][word] = value;
  return quota->seen[slot][word];
}

// Is a member that waits still looking? One that is stopped keeps no memory from others.
static bool is_alive_locked(tide_quota* quota, uint32_t slot) {
  const uint64_t now_ms = tide__quota_now_ms();
  const uint64_t alive_ms = tide__quota_peek_locked(quota, slot, TIDE__WORD_ALIVE);
  return tide__max(now_ms, alive_ms) - tide__min(now_ms, alive_ms) <= STUCK_MS;
}

// Does a member that waits go before this one? Higher priorities do, then those that have waited longer.
static bool goes_first_locked(tide_quota* quota, uint32_t slot) {
  if (!is_alive_locked(quota, slot)) return false;
  const uint32_t own_slot = tide__load_relaxed(&quota->slot);
  const uint64_t own_priority = quota->own[TIDE__WORD_PRIORITY];
  const uint64_t priority = tide__quota_peek_locked(quota, slot, TIDE__WORD_PRIORITY);
  if (priority != own_priority) return priority > own_priority;
  const uint64_t since = tide__quota_peek_locked(quota, slot, TIDE__WORD_SINCE);
  const uint64_t own_since = quota->own[TIDE__WORD_SINCE];
  if (own_since == 0 || since != own_since) return own_since == 0 || since < own_since;
  return slot < own_slot;
}

// A member's claim is never below what it uses. Both its words are written before the member looks at others,
// so one of them is enough. If both are damaged, nobody knows what the member holds, and nothing fits until
// the member has repaired them.
static uint64_t claim_read_locked(tide_quota* quota, uint32_t slot) {
  uint64_t claims[2] = { 0, 0 };
  const bool is_good = tide__quota_get(&quota->file, slot, TIDE__WORD_CLAIM, &claims[0]);
  const bool is_copy_good = tide__quota_get(&quota->file, slot, TIDE__WORD_COPY, &claims[1]);
  if (is_good || is_copy_good) return tide__max(claims[0], claims[1]);
  tide__quota_ring(&quota->file, slot);
  return TIDE__QUOTA_UNLIMITED;
}

static void sums_add_locked(tide_quota* quota, uint32_t slot, quota_sums* sums) {
  const uint64_t claim = claim_read_locked(quota, slot);
  uint64_t used = 0;
  if (!tide__quota_get(&quota->file, slot, TIDE__WORD_USED, &used)) used = claim;
  const uint64_t guarantee = tide__quota_peek_locked(quota, slot, TIDE__WORD_GUARANTEE);
  const uint64_t want = tide__quota_peek_locked(quota, slot, TIDE__WORD_WANT);
  const uint64_t waits = want != 0 && goes_first_locked(quota, slot) ? want : 0;
  const uint64_t held = tide__max(used, claim);
  sums->held += held;
  sums->used += used;
  sums->kept += tide__max(held + waits, guarantee);
  sums->kept_unclaimed += tide__max(used + waits, guarantee);
  if (guarantee != TIDE__QUOTA_UNLIMITED) sums->guaranteed += guarantee;
  if (claim > used && sums->first_claim == UINT32_MAX) sums->first_claim = slot;
}

static quota_sums sums_locked(tide_quota* quota) {
  quota_sums sums = { .first_claim = UINT32_MAX };
  const uint32_t own_slot = tide__load_relaxed(&quota->slot);
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) {
    if (slot != own_slot) sums_add_locked(quota, slot, &sums);
  }
  return sums;
}

static uint64_t sums_without_claims(const quota_sums* sums, bool is_guaranteed) {
  return is_guaranteed ? sums->used : sums->kept_unclaimed;
}

static void claim_set_locked(tide_quota* quota, uint64_t bytes) {
  tide__quota_set_locked(quota, TIDE__WORD_CLAIM, bytes);
  tide__quota_set_locked(quota, TIDE__WORD_COPY, bytes);
}

static void used_settle_locked(tide_quota* quota, uint64_t used) {
  tide__quota_set_locked(quota, TIDE__WORD_USED, used);
  if (used > quota->own[TIDE__WORD_PEAK]) tide__quota_set_locked(quota, TIDE__WORD_PEAK, used);
}

// A take within the guarantee needs memory that is free. One beyond it also leaves the guarantees of others.
// A member looks before it claims: a process that was stopped while it waits must not keep a claim to what it
// cannot have. If only claims are in the way, the member in the lowest slot keeps its claim and looks again;
// the others withdraw theirs for a moment. So one of them gets on.
tide__quota_fit tide__quota_try_locked(tide_quota* quota, uint64_t bytes, uint64_t* out_missing) {
  const uint64_t before = quota->own[TIDE__WORD_USED];
  const uint64_t after = tide__quota_units_up(quota->used_bytes + bytes);
  const uint64_t limit = quota->own[TIDE__WORD_LIMIT];
  const bool is_guaranteed = after <= quota->own[TIDE__WORD_GUARANTEE];
  *out_missing = 0;
  if (bytes == 0) return TIDE__QUOTA_FITS;
  if (after > quota->total || (limit != TIDE__QUOTA_UNLIMITED && after > limit)) return TIDE__QUOTA_OVER;
  const uint64_t room = quota->total - after;
  for (uint32_t times = 0;; times++) {
    quota_sums sums = sums_locked(quota);
    if (sums_without_claims(&sums, is_guaranteed) <= room) {
      claim_set_locked(quota, after);
      sums = sums_locked(quota);
    }
    const uint64_t others = is_guaranteed ? sums.held : sums.kept;
    if (others <= room) {
      quota->used_bytes += bytes;
      used_settle_locked(quota, after);
      return TIDE__QUOTA_FITS;
    }
    const bool is_conflict = sums_without_claims(&sums, is_guaranteed) <= room && times < CONFLICT_TRIES;
    if (!is_conflict || sums.first_claim < tide__load_relaxed(&quota->slot)) claim_set_locked(quota, before);
    if (is_conflict) {
      tide__wait_a_moment(times);
      continue;
    }
    *out_missing = others - room;
    if (!is_guaranteed && sums.guaranteed > room) return TIDE__QUOTA_HOPELESS;
    return TIDE__QUOTA_FULL;
  }
}

uint64_t tide__quota_most_locked(tide_quota* quota) {
  const quota_sums sums = sums_locked(quota);
  const uint64_t total = quota->total;
  const uint64_t beyond = total - tide__min(total, sums.kept);
  const uint64_t within = tide__min(quota->own[TIDE__WORD_GUARANTEE], total - tide__min(total, sums.held));
  return tide__min(tide__max(beyond, within), quota->own[TIDE__WORD_LIMIT]);
}

// An empty slot whose words are damaged is emptied again, so that nobody waits for its member.
static bool slot_is_in_use_locked(tide_quota* quota, uint32_t slot) {
  static const tide__quota_word counted[] = { TIDE__WORD_PID,  TIDE__WORD_USED,      TIDE__WORD_CLAIM,
                                              TIDE__WORD_COPY, TIDE__WORD_GUARANTEE, TIDE__WORD_WANT };
  for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++) {
    uint64_t value = 0;
    if (!tide__quota_get(&quota->file, slot, counted[i], &value) || value != 0) return true;
  }
  return false;
}

// The lock is held while the slot is emptied, so that no new member has it.
bool tide__quota_reap_locked(tide_quota* quota) {
  const uint32_t own_slot = tide__load_relaxed(&quota->slot);
  bool has_reaped = false;
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) {
    if (slot == own_slot || !slot_is_in_use_locked(quota, slot)) continue;
    if (!tide__quota_slot_take(&quota->file, slot)) continue;
    tide__quota_slot_clear(&quota->file, slot);
    tide__quota_slot_drop(&quota->file, slot);
    has_reaped = true;
  }
  if (has_reaped) tide__quota_wake(&quota->file);
  return has_reaped;
}
