// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: budgets. They say who may have how much of a device, and who gives way (docs/budget.md). A budget
// belongs to a tag of a device cache: see "Tags and parking" in device.h. Memory gives way if it goes back to
// the device so that a request can be served: idle memory is given back, or a pool is parked.
//
//   tide_budget budget = TIDE_BUDGET_INIT;
//   budget.limit = (uint64_t)24 << 30;
//   budget.yields = true;                                                  // its layers may be parked
//   tide_status status = tide_device_budget_set(device, "model", &budget);
//   if (status == TIDE_OK) status = tide_device_use(device, "model/layer7", stream);
//   // ... work on the stream that uses the layer ...
//   if (status == TIDE_OK) status = tide_device_done(device, "model/layer7", stream);
//
// What counts for a tag is the physical memory that is reserved in its pools and in those of the tags below
// it: blocks that are handed out, and idle memory. Parked memory does not count. The default pool, and
// pools without a tag, count for the device only. Budgets are looked at only when a pool grows, so requests
// that find cached memory cost the same with and without budgets.
//
// If a request that needs new memory would exceed a limit, or if there is no memory left, other memory gives
// way. The steps are taken in this order, each only as far as it is needed:
//   1. idle memory of the request's own tag is given back;
//   2. idle memory of tags above their soft limit is given back, until they are down to it;
//   3. idle memory of all pools is given back;
//   4. tags that yield are parked, pool by pool, and their contents are kept; if all of them together would
//      not be enough, none is parked;
//   5. processes with which a ledger shares the device are asked: see "Other processes";
//   6. callbacks are called: tide_device_observe_pressure();
//   7. the request fails with TIDE_ERR_NO_MEMORY, and tide_device_last_oom() says what each step found.
// If the limit of a tag is in the way, only memory of this tag and the tags below it can help, and only that
// gives way. Unparking, and tide_device_use(), make room in the same way. In a capture nothing gives way.
//
// Parking needs the policy `tide`. With the policy `torch`, and for plain pools, limits and guarantees hold,
// idle memory is given back, and nothing is parked.
#ifndef TIDEMARK_BUDGET_H
#define TIDEMARK_BUDGET_H

#include "tidemark/device.h"
#include "tidemark/quota.h"

TIDE_BEGIN_DECLS

// ---------------------------------------------------------------------------------------------------
// Budgets

typedef struct tide_budget {
  uint32_t size;  // set by TIDE_BUDGET_INIT
  // Among tags that yield, the one with the lowest priority gives way first. A tag without a budget takes
  // this, `yields` and `is_constant` from the nearest tag above it that has a budget.
  int32_t priority;
  uint64_t limit;       // no request makes the tag exceed it; TIDE_NO_LIMIT: none
  uint64_t soft_limit;  // above it, memory of the tag gives way before that of others; TIDE_NO_LIMIT: none
  // Giving way for other tags never leaves the tag with less. What the tag does not use of it stays free:
  // requests of others leave room for it under the limits of the tags above, and under the limit of the
  // device or, if that has none, its total memory. At most `limit`.
  uint64_t guarantee;
  // Pools of the tag may be parked while they are not in use: call tide_device_use() before work with their
  // memory, and tide_device_done() after it. Pools that cannot be parked, those with an open scope, and
  // those whose backup is TIDE_BACKUP_NONE do not yield.
  bool yields;
  // The contents do not change while blocks are handed out, except between their allocation and the first
  // time that they are parked. If a pool is parked again with the same blocks, and its backup was kept,
  // nothing is copied.
  bool is_constant;
} tide_budget;
// clang-format off
#define TIDE_BUDGET_INIT                                                                    \
  { TIDE_FIELD(size, sizeof(tide_budget)), TIDE_FIELD(priority, 0),                         \
    TIDE_FIELD(limit, TIDE_NO_LIMIT), TIDE_FIELD(soft_limit, TIDE_NO_LIMIT),                \
    TIDE_FIELD(guarantee, 0), TIDE_FIELD(yields, false), TIDE_FIELD(is_constant, false) }
// clang-format on

// Gives a tag a budget, or replaces the one that it has; NULL takes it away. The tag need not have a pool
// yet. If the limit is below what is reserved, memory of the tag and the tags below it gives way at once, as
// far as possible: idle memory, then pools that yield. Blocks that are handed out stay. Requests that need
// new memory fail until enough of these blocks are released.
// Errors: TIDE_ERR_ARGUMENT for a text that is not a tag, or a guarantee above the limit; TIDE_ERR_NO_MEMORY
//         for the record of the tag.
TIDE_API TIDE_NODISCARD tide_status tide_device_budget_set(tide_device_cache* device, const char* tag,
                                                           const tide_budget* budget);
// The budget of a tag; the values of TIDE_BUDGET_INIT if it has none.
TIDE_API TIDE_NODISCARD tide_status tide_device_budget_get(tide_device_cache* device, const char* tag,
                                                           tide_budget* out);

typedef struct tide_budget_stats {
  uint32_t size;            // set by TIDE_BUDGET_STATS_INIT
  uint32_t use_count;       // uses of exactly this tag that are not done
  uint64_t reserved_bytes;  // of the tag and those below it: what is compared with its limits
  // The same, plus the guarantees of tags below it that are not used: what the limit of the tag leaves no
  // room for.
  uint64_t claimed_bytes;
  // Sums since the allocator was made, of the tag and those below it.
  uint64_t parked_count;   // pools that were parked to give way
  uint64_t fetched_count;  // pools that were brought back for a use
  uint64_t ahead_count;    // of these, pools that were fetched ahead of their use
  uint64_t sent_bytes;     // copied to backups when pools were parked
  uint64_t fetched_bytes;  // copied back
  uint64_t idle_bytes;     // idle memory that was given back to give way
  uint64_t refused_count;  // requests and uses that failed for lack of memory
  // The most that was ever reserved at once; since tide_device_reset_peaks() if that was called.
  uint64_t peak_reserved_bytes;
} tide_budget_stats;
#define TIDE_BUDGET_STATS_INIT TIDE_SIZED(tide_budget_stats)

// What a tag has, and what giving way has cost it. Zeros for a tag that is not known.
TIDE_API TIDE_NODISCARD tide_status tide_device_budget_stats(tide_device_cache* device, const char* tag,
                                                             tide_budget_stats* out);

// ---------------------------------------------------------------------------------------------------
// Work with memory that may be parked

// Call this before work that uses memory of a tag, or of tags below it, is queued on `stream`. Call
// tide_device_done() after the work was queued. In between, none of this memory is parked to give way; idle
// memory may still be given back. Uses are counted: each needs its own tide_device_done(), which may be
// called in another thread.
//
// If pools of the tag are parked, tide_device_use() fetches them, that is, brings them back, and other memory
// gives way for them. With a pinned backup the host does not wait: `stream` waits on the device. Other
// streams that use the memory need a use of their own, or must wait for this one. Backups are kept for the
// next time: see tide_device_trim_backups().
//
// The order of uses is learnt. If a sequence of at most 1023 uses was repeated and begins for the third time,
// it is expected to go on. (A tag may have several places in it. Uses of the same tag in a row count once.)
// Then parked pools are fetched ahead of their use, in that order and as early as there is room, provided
// that they have a pinned backup. Tags that are needed later give way for them. If not all tags of the
// sequence fit, some of them stay in place, spread evenly over it, and the others come and go. A wrong guess
// costs time, and nothing else.
// Errors: TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY, with the reason in tide_last_error(), if not enough memory
//         gives way; TIDE_ERR_CAPTURE and TIDE_ERR_STATE as for tide_device_unpark(); TIDE_ERR_MACHINE. After
//         an error the tag is not in use.
TIDE_API TIDE_NODISCARD tide_status tide_device_use(tide_device_cache* device, const char* tag,
                                                    tide_stream stream);
// Ends a use. The memory may give way when the work that was queued before on `stream` has passed. What is
// expected next is fetched ahead. For that, the call may wait for the work of earlier uses of other tags, but
// not for that of this one.
// Errors: TIDE_ERR_STATE if the tag is not in use; TIDE_ERR_ARGUMENT.
TIDE_API tide_status tide_device_done(tide_device_cache* device, const char* tag, tide_stream stream);

// ---------------------------------------------------------------------------------------------------
// Callbacks

// What a request lacks when all steps before the callbacks have failed.
typedef struct tide_pressure {
  uint32_t size;          // of this struct
  uint64_t wanted_bytes;  // what the request, or the memory that comes back, needs
  const char* tag;        // of the pool that wants these bytes; "": none
  // The tag whose limit is in the way; "": the device has no memory left. Both texts live as long as the
  // allocator.
  const char* limited_tag;
} tide_pressure;

// Called with no lock held, on the thread that makes the request. It may release blocks, park tags, change
// budgets and make requests. Afterwards the request is tried once more. Requests that the function itself
// makes do not call it again.
typedef void (*tide_pressure_fn)(void* user, tide_device_cache* device, const tide_pressure* pressure);
// Attaches such a function; tide_device_detach() detaches it. Errors: TIDE_ERR_LIMIT above 32 functions.
TIDE_API TIDE_NODISCARD tide_status tide_device_observe_pressure(tide_device_cache* device,
                                                                 tide_pressure_fn function, void* user,
                                                                 tide_observer* out);

// ---------------------------------------------------------------------------------------------------
// Other processes

// Joins a ledger (quota.h, docs/ledger.md): a file by which processes, its members, share the memory of a
// device. From now on all that the cache reserves counts in the ledger as held by this process. If the ledger
// does not have the memory for a request, that is the same as if the device did not have it: idle memory is
// given back, and tags that yield are parked. If that is not enough, the other members are asked, before the
// callbacks of pressure, and the request waits for up to `wait_ns`; in a capture it does not wait. The device
// may have less than the ledger, because the memory of a process that has ended is still coming back. Then
// the request waits for that, too.
//
// When other members ask, a thread of the cache gives idle memory back, and then parks tags that yield and
// are not in use. Guarantees of tags hold here, too. In a capture nothing is given.
//
// `on_ask` and `user` of the options must be NULL. The thread exists whatever `has_helper` says.
// Errors: TIDE_ERR_STATE if the cache is a member already, and inside an observer, which must not wait;
//         TIDE_ERR_NO_MEMORY if the ledger has no room for what the cache has already reserved; as
//         tide_quota_join().
// Cost:   a take and a give for each piece of memory that comes from the machine, 3 us together. Requests
//         that find cached memory cost the same as without a ledger.
TIDE_API TIDE_NODISCARD tide_status tide_device_join(tide_device_cache* device,
                                                     const tide_quota_options* options);
// Leaves the ledger: what the cache has is no longer counted. Requests that wait for other members go on
// without the ledger. While another thread joins or leaves, a join or leave waits for it. tide_device_free()
// leaves, too. Inside an observer the call does nothing, because it waits for the thread that answers others.
TIDE_API void tide_device_leave(tide_device_cache* device);

TIDE_END_DECLS
#endif
