// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Gives way: idle memory of pools first, then pools that yield are parked. Pools are chosen one after
// another, because each of them changes what is lacking, and others may have the gate in between.
#include "device/tide/giving.h"

#include "device/tide/freight.h"
#include "device/tide/parking.h"

// ---------------------------------------------------------------------------------------------------
// Who gives way first

// The rank of a pool among those that may give way.
typedef struct giver_rank {
  bool is_modest;  // it does not exceed its soft limit
  int32_t priority;
  bool stays;            // it had better not come and go
  uint64_t steps_ahead;  // uses until it is expected
  uint64_t used_at;
  tide_pool number;
} giver_rank;

static giver_rank rank_of(tide__pool* pool) {
  tide__tag* const tag = tide__pool_tag_record(pool);
  return (giver_rank){ .is_modest = tide__budget_excess(pool) == 0,
                       .priority = tide__budget_of(tag)->priority,
                       .stays = tide__tag_stays(tag),
                       .steps_ahead = tide__tag_steps_ahead(tag),
                       .used_at = tide__tag_used_at(tag),
                       .number = pool->base.number };
}

// In a loop over more than fits, the longest unused is what comes next. So it is the rule only as long as
// the order of uses is not known.
static bool rank_is_before(const giver_rank* a, const giver_rank* b) {
  if (a->is_modest != b->is_modest) return b->is_modest;
  if (a->priority != b->priority) return a->priority < b->priority;
  if (a->stays != b->stays) return b->stays;
  if (a->steps_ahead != b->steps_ahead) return a->steps_ahead > b->steps_ahead;
  if (a->used_at != b->used_at) return a->used_at < b->used_at;
  return a->number < b->number;
}

// A walk over the pools that may give way.
typedef struct giving_walk {
  const tide__giving* giving;
  const tide__tag* under;  // the tag that lacks; NULL: all
  uint64_t turn;
  bool (*takes)(const struct giving_walk* walk, tide__pool* pool);
  tide__giver giver;
} giving_walk;

// The first pool in rank that the walk takes and has not seen; the caller is its guest. NULL: there is
// none.
static tide__pool* walk_next(const giving_walk* walk) {
  tide_device_cache* const device = walk->giving->device;
  tide__pool* best = NULL;
  giver_rank best_rank = { 0 };
  tide__mutex_lock(&device->pools_lock);
  tide__pool_base* base = tide__pools_first_locked(&device->pools);
  for (; base != NULL; base = tide__pools_after_locked(base)) {
    tide__pool* const pool = tide__pool_of(base);
    if (tide__pool_tag_record(pool) == NULL || pool->give_turn == walk->turn) continue;
    if (!tide__tag_is_under(tide__pool_tag_record(pool), walk->under) || !walk->takes(walk, pool)) continue;
    const giver_rank rank = rank_of(pool);
    if (best != NULL && !rank_is_before(&rank, &best_rank)) continue;
    best = pool;
    best_rank = rank;
  }
  if (best != NULL) {
    best->base.guests++;
    best->give_turn = walk->turn;
  }
  tide__mutex_unlock(&device->pools_lock);
  return best;
}

static bool pool_is_captured_locked(tide_device_cache* device, tide__pool* pool) {
  const tide__scope* const scope = tide__pools_scope_locked(&device->pools, &pool->base);
  return tide__load_relaxed(&pool->is_captured) || (scope != NULL && !scope->is_region);
}

tide__lack tide__giving_lack(const tide__giving* giving) {
  return tide__budget_lack(giving->device, giving->wants, giving->want_count, giving->lowered);
}

// ---------------------------------------------------------------------------------------------------
// Idle memory

static bool is_of_asker(const tide__giving* giving, const tide__tag* tag) {
  for (size_t i = 0; i < giving->want_count; i++) {
    const tide__tag* const asker = tide__pool_tag_record(giving->wants[i].pool);
    if (asker != NULL && tide__tag_is_under(tag, asker)) return true;
  }
  return giving->lowered != NULL && tide__tag_is_under(tag, giving->lowered);
}

// Raw memory goes in whole segments, which heed no floor. A graph may write to idle memory of a captured
// pool.
static bool idle_takes_locked(const giving_walk* walk, tide__pool* pool) {
  tide_device_cache* const device = walk->giving->device;
  const uint64_t takeable = tide__budget_takeable(pool);
  const uint64_t reserved = tide__load_relaxed(&pool->reserved_bytes);
  if (takeable == 0 || tide__pool_is_away(pool) || pool_is_captured_locked(device, pool)) return false;
  if (takeable < reserved && tide__policy_of(device, pool) == device->plain_policy) return false;
  if (walk->giver == TIDE__GIVES_OWN) return is_of_asker(walk->giving, tide__pool_tag_record(pool));
  return walk->giver == TIDE__GIVES_ALL || tide__budget_excess(pool) > 0;
}

static tide_status pool_give_idle(const giving_walk* walk, tide__pool* pool, uint64_t bytes) {
  const uint64_t takeable = tide__budget_takeable(pool);
  const uint64_t before = tide__load_relaxed(&pool->reserved_bytes);
  tide__tag* const tag = tide__pool_tag_record(pool);
  if (walk->giver == TIDE__GIVES_EXCESS) bytes = tide__min(bytes, tide__budget_excess(pool));
  pool->floor_bytes = before - takeable;
  const tide_status status =
      tide__reclaim_pool_some(walk->giving->device, pool, bytes, walk->giving->context);
  pool->floor_bytes = 0;
  tag->idle_bytes += before - tide__min(before, tide__load_relaxed(&pool->reserved_bytes));
  return status;
}

// What is lacking now, of a giving that has given `given` bytes so far.
static tide__lack lack_after(const tide__giving* giving, uint64_t given) {
  tide__lack lack = tide__giving_lack(giving);
  if (lack.bytes == 0 && giving->refused_bytes > given) lack.bytes = giving->refused_bytes - given;
  return lack;
}

uint64_t tide__given_since(tide_device_cache* device, uint64_t before) {
  const uint64_t reserved = tide__load_relaxed(&device->reserved_bytes);
  return before > reserved ? before - reserved : 0;
}

// Takes idle memory of pools until enough has gone. Each pool is asked once for each tag that lacks.
static tide_status pools_give_idle(const tide__giving* giving, tide__giver giver, uint64_t before) {
  tide_device_cache* const device = giving->device;
  giving_walk walk = { .giving = giving, .takes = idle_takes_locked, .giver = giver };
  tide__lack lack = lack_after(giving, tide__given_since(device, before));
  while (lack.bytes > 0) {
    if (walk.turn == 0 || walk.under != lack.tag) walk.turn = ++device->give_turns;
    walk.under = lack.tag;
    tide__pool* const pool = walk_next(&walk);
    if (pool == NULL) return TIDE_OK;
    const tide_status status = pool_give_idle(&walk, pool, lack.bytes);
    tide__pool_leave(device, pool);
    TIDE_TRY(status);
    lack = lack_after(giving, tide__given_since(device, before));
  }
  return TIDE_OK;
}

// Blocks that wait for announced work become idle. Then memory without a tag goes, if no tag is in the way.
static tide_status default_give_idle(const tide__giving* giving, tide__lack lack) {
  tide_device_cache* const device = giving->device;
  if (lack.bytes == 0 || lack.tag != NULL) return TIDE_OK;
  tide__ignore(tide__external_synchronize(device));
  return tide__reclaim_some(device, lack.bytes, giving->context);
}

// The machine was not asked if a budget is in the way.
tide_status tide__give_idle(const tide__giving* giving, tide__giver giver) {
  tide_device_cache* const device = giving->device;
  tide__giving own = *giving;
  if (!tide__timeline_is_empty(device)) TIDE_TRY(tide__timeline_wait(device, NULL, giving->context));
  tide__gate_settle(device);
  const uint64_t before = tide__load_relaxed(&device->reserved_bytes);
  if (tide__giving_lack(giving).bytes > 0) own.refused_bytes = 0;
  if (giver == TIDE__GIVES_ALL) TIDE_TRY(default_give_idle(&own, lack_after(&own, 0)));
  return pools_give_idle(&own, giver, before);
}

// ---------------------------------------------------------------------------------------------------
// Parking

static bool is_wanting(const tide__giving* giving, const tide__pool* pool) {
  for (size_t i = 0; i < giving->want_count; i++) {
    if (giving->wants[i].pool == pool) return true;
  }
  return false;
}

// May a pool be parked when it is not in use?
static bool pool_yields(tide_device_cache* device, tide__pool* pool) {
  return tide__budget_of(tide__pool_tag_record(pool))->yields &&
         tide__policy_of(device, pool) == &tide__policy_tide &&
         tide__load_relaxed(&pool->backup) != TIDE_BACKUP_NONE;
}

// Finds out when pools are expected, and which of them stay, if `lack` is what gives way. What pools that
// yield may have then is what they have and want now, without it.
static void order_apply(const tide__giving* giving, tide__lack lack) {
  tide_device_cache* const device = giving->device;
  uint64_t capacity = 0;
  tide__uses_expect(device);
  tide__stays_begin(device);
  if (tide__round_count(device) == 0) return;
  tide__mutex_lock(&device->pools_lock);
  tide__pool_base* base = tide__pools_first_locked(&device->pools);
  for (; base != NULL; base = tide__pools_after_locked(base)) {
    tide__pool* const pool = tide__pool_of(base);
    tide__tag* const tag = tide__pool_tag_record(pool);
    if (tag == NULL || !tide__tag_is_under(tag, lack.tag) || !pool_yields(device, pool)) continue;
    const uint64_t reserved = tide__load_relaxed(&pool->reserved_bytes);
    const uint64_t away = pool->parked != NULL ? pool->parked->bytes : 0;
    if (tide__stays_add(tag, tide__max(reserved, away)))
      capacity += is_wanting(giving, pool) ? away : reserved;
  }
  tide__mutex_unlock(&device->pools_lock);
  tide__stays_end(device, capacity - tide__min(capacity, lack.bytes));
}

// What comes ahead takes nothing that is needed before it, or soon.
static bool gives_ahead(const tide__ahead* ahead, tide__tag* tag) {
  if (ahead->working != NULL && tide__tag_is_under(tag, ahead->working)) return false;
  return tide__tag_steps_ahead(tag) > ahead->steps && !tide__tag_stays(tag);
}

// Parking a pool takes all of its memory, so guarantees must allow that.
static bool park_takes_locked(const giving_walk* walk, tide__pool* pool) {
  tide_device_cache* const device = walk->giving->device;
  const tide__ahead* const ahead = walk->giving->ahead;
  tide__tag* const tag = tide__pool_tag_record(pool);
  const uint64_t reserved = tide__load_relaxed(&pool->reserved_bytes);
  if (!pool_yields(device, pool) || tide__tag_is_used(tag) || reserved == 0) return false;
  if (tide__pool_is_away(pool) || pool->base.has_scope || is_wanting(walk->giving, pool)) return false;
  if (ahead != NULL && !gives_ahead(ahead, tag)) return false;
  return tide__budget_takeable(pool) >= reserved;
}

// Can a pool be parked without waiting for work or copies?
static bool pool_is_at_rest(tide_device_cache* device, tide__pool* pool) {
  const tide__tag* tag = tide__pool_tag_record(pool);
  const tide_error before = *tide_last_error();
  bool is_at_rest = tide__load_relaxed(&pool->is_tracked) != 0 && tide__budget_of(tag)->is_constant;
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  for (; tag != NULL && is_at_rest; tag = tag->parent) {
    is_at_rest = !tag->is_done_unknown;
    if (!is_at_rest || tag->done == NULL) continue;
    if (tide_machine_event_query(device->machine, tag->done, &is_at_rest) != TIDE_OK) is_at_rest = false;
  }
  tide__relax_end(&relaxed);
  tide__error_restore(&before);
  return is_at_rest;
}

// The pool had a backup when it was chosen, but that may change at any time: nobody has asked to discard what
// it contains.
static bool pool_park(const tide__giving* giving, tide__pool* pool) {
  tide_device_cache* const device = giving->device;
  tide__tag* const tag = tide__pool_tag_record(pool);
  const uint32_t backup = tide__load_relaxed(&pool->backup);
  if (backup == TIDE_BACKUP_NONE) return false;
  const tide_error before = *tide_last_error();
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  const tide__park_order order = { .wish = { .tag = tag->text, .kind = backup }, .unparks_on_request = true };
  const tide_status status =
      tide__pools_park(device, (tide__pool_list){ &pool, 1 }, &order, giving->context, &result);
  tide__error_restore(&before);
  if (status != TIDE_OK) return false;
  tag->parked_count++;
  tag->sent_bytes += result.copied_bytes;
  return true;
}

static tide_status idle_give_all(const tide__giving* giving) {
  for (tide__giver giver = TIDE__GIVES_OWN; giver <= TIDE__GIVES_ALL; giver++) {
    TIDE_TRY(tide__give_idle(giving, giver));
  }
  return TIDE_OK;
}

// Another tag may be in the way now, which has idle memory. If that cannot be given back, more is parked.
static void idle_give_again(const tide__giving* giving) {
  const tide_error before = *tide_last_error();
  if (tide__giving_lack(giving).bytes > 0) tide__ignore(idle_give_all(giving));
  tide__error_restore(&before);
}

// May pools that yield be enough? Guarantees that several of them share are not looked at.
static bool parking_may_do(const tide__giving* giving) {
  tide_device_cache* const device = giving->device;
  const tide__lack lack = tide__giving_lack(giving);
  const giving_walk walk = { .giving = giving };
  uint64_t bytes = 0;
  order_apply(giving, lack);
  tide__mutex_lock(&device->pools_lock);
  tide__pool_base* base = tide__pools_first_locked(&device->pools);
  for (; base != NULL; base = tide__pools_after_locked(base)) {
    tide__pool* const pool = tide__pool_of(base);
    tide__tag* const tag = tide__pool_tag_record(pool);
    if (tag == NULL || !tide__tag_is_under(tag, lack.tag) || !park_takes_locked(&walk, pool)) continue;
    bytes += tide__load_relaxed(&pool->reserved_bytes);
  }
  tide__mutex_unlock(&device->pools_lock);
  return bytes >= lack.bytes;
}

bool tide__give_next(const tide__giving* giving, uint64_t* turn) {
  tide_device_cache* const device = giving->device;
  if (*turn == 0 && giving->lowered == NULL && !parking_may_do(giving)) return false;
  if (*turn == 0) *turn = ++device->give_turns;
  giving_walk walk = { .giving = giving, .takes = park_takes_locked, .turn = *turn };
  for (;;) {
    tide__gate_settle(device);  // from the choice of a pool until it moves, the gate is not left
    const tide__lack lack = tide__giving_lack(giving);
    order_apply(giving, lack);
    walk.under = lack.tag;
    tide__pool* const pool = walk_next(&walk);
    if (pool == NULL) return false;
    const bool may_go = giving->ahead == NULL || giving->ahead->waits || pool_is_at_rest(device, pool);
    const bool is_parked = may_go && pool_park(giving, pool);
    tide__pool_leave(device, pool);
    if (!may_go) return false;
    if (is_parked) {
      idle_give_again(giving);
      return true;
    }
  }
}

tide_status tide__give_way(const tide__giving* giving) {
  uint64_t turn = 0;
  if (tide__giving_lack(giving).bytes == 0) return TIDE_OK;
  if (giving->ahead != NULL && !parking_may_do(giving)) return TIDE_OK;
  TIDE_TRY(idle_give_all(giving));
  while (tide__giving_lack(giving).bytes > 0 && tide__give_next(giving, &turn)) continue;
  return TIDE_OK;
}
