// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `budget`: the figures of tags, from the pools up, and what the rules say about them.
#include "device/budget/budget.h"

static uint64_t sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

// ---------------------------------------------------------------------------------------------------
// Measuring

static void tags_clear(tide_device_cache* device) {
  for (tide__tag* tag = tide__tags_first(device); tag != NULL; tag = tag->next) {
    tag->own = tag->added = tag->reserved = tag->basis = 0;
    tag->is_asking = false;
  }
}

static void pools_count(tide_device_cache* device) {
  tide__mutex_lock(&device->pools_lock);
  tide__pool_base* base = tide__pools_first_locked(&device->pools);
  for (; base != NULL; base = tide__pools_after_locked(base)) {
    tide__pool* const pool = tide__pool_of(base);
    tide__tag* const tag = tide__pool_tag_record(pool);
    if (tag != NULL) tag->own += tide__load_relaxed(&pool->reserved_bytes);
  }
  tide__mutex_unlock(&device->pools_lock);
}

static uint64_t wants_note(const tide__want* wants, size_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < count; i++) {
    tide__tag* tag = wants[i].bytes > 0 ? tide__pool_tag_record(wants[i].pool) : NULL;
    bytes += wants[i].bytes;
    if (tag != NULL) tag->added += wants[i].bytes;
    for (; tag != NULL; tag = tag->parent) tag->is_asking = true;
  }
  return bytes;
}

// Tags come before those above them.
tide__device_level tide__budgets_measure(tide_device_cache* device, const tide__want* wants, size_t count) {
  tide__device_level level = { tide__load_relaxed(&device->reserved_bytes), 0 };
  tags_clear(device);
  pools_count(device);
  level.reserved += wants_note(wants, count);
  level.basis = level.reserved;
  for (tide__tag* tag = tide__tags_first(device); tag != NULL; tag = tag->next) {
    tag->reserved += tag->own + tag->added;
    tag->basis += tag->own + tag->added;
    const uint64_t claimed = tide__max(tag->basis, tag->budget.guarantee);
    if (tag->parent != NULL) {
      tag->parent->reserved += tag->reserved;
      tag->parent->basis += claimed;
    } else {
      level.basis += claimed - tag->reserved;
    }
  }
  return level;
}

// ---------------------------------------------------------------------------------------------------
// Room

static uint64_t device_limit(tide_device_cache* device) {
  const uint64_t limit = tide__load_relaxed(&device->limit);
  return limit != TIDE_NO_LIMIT ? limit : device->total_bytes;
}

uint64_t tide__budget_room(tide_device_cache* device, tide__pool* pool) {
  uint64_t room = UINT64_MAX;
  uint64_t spare = 0;  // of guarantees that the pool may use
  if (!tide__budgets_exist(device)) return room;
  const tide__device_level level = tide__budgets_measure(device, NULL, 0);
  for (const tide__tag* tag = tide__pool_tag_record(pool); tag != NULL; tag = tag->parent) {
    if (tag->budget.limit != TIDE_NO_LIMIT) {
      room = tide__min(room, tide__difference(tag->budget.limit, tag->reserved));
      room = tide__min(room, sum(spare, tide__difference(tag->budget.limit, tag->basis)));
    }
    spare += tide__difference(tag->budget.guarantee, tag->basis);
  }
  if (level.basis == level.reserved) return room;  // no guarantee is unused
  return tide__min(room, sum(spare, tide__difference(device_limit(device), level.basis)));
}

// ---------------------------------------------------------------------------------------------------
// Lack

// What must go of a level that was `before`. It may stay above the limit, but what goes lowers both.
static uint64_t too_much(uint64_t now, uint64_t before, uint64_t limit) {
  return now > before ? tide__difference(now, limit) : 0;
}

static tide__lack tag_lack(tide__tag* tag, const tide__tag* lowered) {
  const uint64_t limit = tag->budget.limit;
  tide__lack lack = { tag, 0 };
  if (limit == TIDE_NO_LIMIT || (!tag->is_asking && tag != lowered)) return lack;
  lack.bytes =
      tide__max(tide__difference(tag->reserved, limit), too_much(tag->basis, tag->basis_before, limit));
  return lack;
}

static tide__lack device_lack(tide_device_cache* device, tide__device_level before,
                              tide__device_level after) {
  const uint64_t limit = device_limit(device);
  tide__lack lack = { NULL, 0 };
  if (after.reserved == before.reserved) return lack;
  if (tide__load_relaxed(&device->limit) != TIDE_NO_LIMIT)
    lack.bytes = tide__difference(after.reserved, limit);
  if (after.basis > after.reserved || before.basis > before.reserved) {
    lack.bytes = tide__max(lack.bytes, too_much(after.basis, before.basis, limit));
  }
  return lack;
}

static void lowered_note(tide__tag* tag) {
  for (; tag != NULL; tag = tag->parent) tag->is_asking = true;
}

tide__lack tide__budget_lack(tide_device_cache* device, const tide__want* wants, size_t count,
                             tide__tag* lowered) {
  const tide__device_level before = tide__budgets_measure(device, NULL, 0);
  for (tide__tag* tag = tide__tags_first(device); tag != NULL; tag = tag->next) {
    tag->basis_before = tag->basis;
  }
  const tide__device_level after = tide__budgets_measure(device, wants, count);
  for (tide__tag* tag = tide__tags_first(device); tag != NULL; tag = tag->next) {
    const tide__lack lack = tag_lack(tag, lowered);
    if (lack.bytes == 0) continue;
    lowered_note(lowered);
    return lack;
  }
  lowered_note(lowered);
  return device_lack(device, before, after);
}

// ---------------------------------------------------------------------------------------------------
// Questions about a pool or a tag

uint64_t tide__budget_takeable(tide__pool* pool) {
  uint64_t bytes = tide__load_relaxed(&pool->reserved_bytes);
  for (const tide__tag* tag = tide__pool_tag_record(pool); tag != NULL; tag = tag->parent) {
    if (!tag->is_asking) bytes = tide__min(bytes, tide__difference(tag->reserved, tag->budget.guarantee));
  }
  return bytes;
}

uint64_t tide__budget_excess(tide__pool* pool) {
  uint64_t bytes = 0;
  for (const tide__tag* tag = tide__pool_tag_record(pool); tag != NULL; tag = tag->parent) {
    bytes = tide__max(bytes, tide__difference(tag->reserved, tag->budget.soft_limit));
  }
  return bytes;
}

bool tide__pool_is_guaranteed(tide__pool* pool) {
  const tide__tag* tag = tide__pool_tag_record(pool);
  while (tag != NULL && tag->budget.guarantee == 0) tag = tag->parent;
  return tag != NULL;
}

const tide_budget* tide__budget_of(const tide__tag* tag) {
  static const tide_budget none = TIDE_BUDGET_INIT;
  while (tag != NULL && !tag->has_budget) tag = tag->parent;
  return tag != NULL ? &tag->budget : &none;
}

bool tide__tag_is_used(const tide__tag* tag) {
  while (tag != NULL && tag->uses == 0) tag = tag->parent;
  return tag != NULL;
}

uint64_t tide__tag_used_at(const tide__tag* tag) {
  uint64_t at = 0;
  for (; tag != NULL; tag = tag->parent) at = tide__max(at, tag->used_at);
  return at;
}
