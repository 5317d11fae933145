// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The rules of budgets (docs/budget.md): how much a pool may grow, whose limit is in the way, and how much
// may be taken from whom. It computes, and changes nothing but the figures in tags. The caller has the
// gate.
//
// For a tag, with the sums over the tags directly below it:
//   reserved = own + sum of reserved
//   basis    = own + sum of max(basis, guarantee)     what the limit of the tag must leave room for
// [B1] a request leaves reserved <= limit, or does not make it larger [B2] a request leaves basis <= limit,
// or does not make it larger Both hold for the device, too, whose limit is that of the allocator or else
// all memory that it has. A request within the unused guarantee of a tag makes no basis above that tag
// larger, so nobody can keep it from its guarantee.
#ifndef TIDEMARK_SRC_DEVICE_BUDGET_BUDGET_H
#define TIDEMARK_SRC_DEVICE_BUDGET_BUDGET_H

#include "device/lane/lane.h"

// Has any tag a budget? Otherwise there are no rules.
static inline bool tide__budgets_exist(const tide_device_cache* device) { return device->budget_count > 0; }

// Memory that a pool is to get.
typedef struct tide__want {
  tide__pool* pool;
  uint64_t bytes;
} tide__want;

// What the device has.
typedef struct tide__device_level {
  uint64_t reserved;
  uint64_t basis;
} tide__device_level;

// Sets the figures of all tags, for memory that is to come.
tide__device_level tide__budgets_measure(tide_device_cache* device, const tide__want* wants, size_t count);

// How much more a pool may have; UINT64_MAX: no rule says. The limit of the device is not counted.
uint64_t tide__budget_room(tide_device_cache* device, tide__pool* pool);

// How much must go before all of the wanted memory can come, and under which tag; NULL: anywhere. 0 bytes:
// it can come.
typedef struct tide__lack {
  tide__tag* tag;
  uint64_t bytes;
} tide__lack;
// `lowered` is a tag whose limit was lowered; NULL: none. The most special tag comes first.
tide__lack tide__budget_lack(tide_device_cache* device, const tide__want* wants, size_t count,
                             tide__tag* lowered);
// What may be taken from a pool for those wants, after tide__budget_lack(): all but guarantees.
uint64_t tide__budget_takeable(tide__pool* pool);
// By how much a tag above the pool, or its own, exceeds its soft limit; after the same.
uint64_t tide__budget_excess(tide__pool* pool);

// Has its tag a guarantee, or one above it?
bool tide__pool_is_guaranteed(tide__pool* pool);

// The budget that says whether a tag yields: its own, or that of the nearest tag above it that has one.
const tide_budget* tide__budget_of(const tide__tag* tag);
// Is the tag in use, or one above it? And when was that last?
bool tide__tag_is_used(const tide__tag* tag);
uint64_t tide__tag_used_at(const tide__tag* tag);

// uses.c: the order of uses

// A tag is being used: learns that it follows the last one. Without memory for that, nothing is learnt.
void tide__uses_learn(tide_device_cache* device, tide__tag* tag);
void tide__uses_free(tide_device_cache* device);
// The uses that are repeated: how many, 0 if that is unknown; and the tag of one.
size_t tide__round_count(const tide_device_cache* device);
tide__tag* tide__round_tag(const tide_device_cache* device, size_t place);
// The tag that is expected so many uses after the last one, at least 1; NULL: unknown, or a round later.
tide__tag* tide__uses_next(const tide_device_cache* device, size_t steps);
// Finds out for all tags when they are expected, from the last use on.
void tide__uses_expect(tide_device_cache* device);
// When the tag, or one above it, is expected; after that.
uint64_t tide__tag_steps_ahead(const tide__tag* tag);

// stays.c: who stays in place while others come and go

// Begins a choice.
void tide__stays_begin(tide_device_cache* device);
// A pool of a tag takes part in it, with so many bytes; false if it is not in the round.
bool tide__stays_add(tide__tag* tag, uint64_t bytes);
// Chooses, for so much memory that all of them may have.
void tide__stays_end(tide_device_cache* device, uint64_t capacity);
// Does a pool of the tag stay? After that; false if nothing is known about it.
bool tide__tag_stays(tide__tag* tag);

#endif
