// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The lowest layer of the device allocator: the gate, totals, history, pools, lanes, and the blocks in them.
// It knows nothing of the machine's memory or of policies.
#ifndef TIDEMARK_SRC_DEVICE_LANE_LANE_H
#define TIDEMARK_SRC_DEVICE_LANE_LANE_H

#include "device/allocator.h"

// ---------------------------------------------------------------------------------------------------
// device.c: settings; gate.c: the gate

static inline const tide_device_options* tide__device_options(tide_device_cache* device) {
  return &tide__load_acquire(&device->settings)->options;  // pairs with tide__settings_publish
}
// In a child of a fork the memory still belongs to the parent, and locks may never be released.
static inline bool tide__is_inherited(tide_device_cache* device) {
  return (tide__load_relaxed(&device->detours) & TIDE__IS_INHERITED) != 0;
}
tide_status tide__inherited_refuse(const char* call);
// For calls off the fast path: refuses an allocator that was inherited by a fork.
#define TIDE__REQUIRE_OWN(device, call)     \
  do {                                      \
    if (tide__is_inherited(device)) {       \
      (void)tide__inherited_refuse((call)); \
      return TIDE_ERR_STATE;                \
    }                                       \
  } while (0)
// Takes the gate, the turn to grow or shrink the allocator; returns the number of turns before this one.
uint64_t tide__gate_enter(tide_device_cache* device);
// The same for a thread that lets all others go first.
void tide__gate_enter_last(tide_device_cache* device);
void tide__gate_leave(tide_device_cache* device);
// Leaves the gate while observers hear of memory that is about to go, and takes it again. The memory is BUSY
// meanwhile, so that it belongs to the caller.
void tide__gate_pause(tide_device_cache* device);
void tide__gate_resume(tide_device_cache* device);
// Tells observers the entries that the thread has made, and waits until no other thread has paused: what that
// is about to give back is then back. The caller has the gate before and after, but not between. A thread
// that is inside an observer does not wait, because two of them could wait for each other.
void tide__gate_settle(tide_device_cache* device);
// Leaves the gate until nobody moves a pool any more, of which the caller is a guest.
void tide__gate_wait_for(tide_device_cache* device, const tide__pool* moving);
// Are scopes open that act as captures? Regions do not.
static inline bool tide__has_captures(tide_device_cache* device) {
  return (tide__load_relaxed(&device->detours) & TIDE__HAS_CAPTURES) != 0;
}
// Sets or clears a bit of `detours`.
void tide__detour(tide_device_cache* device, uint32_t bit, bool is_set);

// ---------------------------------------------------------------------------------------------------
// totals.c, stats.c

void tide__totals_add(tide_device_cache* device, tide__tally* tally);
// How much is active in large blocks, with a change that is not in the totals. The totals are below 0 while
// the tally of a thread has what another one released. The caller has their lock.
static inline uint64_t tide__totals_large(const tide_device_cache* device, int64_t change) {
  const int64_t bytes = device->totals.active_bytes[TIDE_STAT_LARGE].current + change;
  return bytes > 0 ? (uint64_t)bytes : 0;
}
// A released block begins or ends its wait. The tally of its lane must have been added before.
void tide__totals_wait_begin(tide_device_cache* device, const tide__block* block);
void tide__totals_wait_end(tide_device_cache* device, const tide__block* block);
void tide__totals_count(tide_device_cache* device, size_t field_offset, uint64_t count);
#define TIDE__COUNT_MANY(device, field, count) \
  tide__totals_count((device), offsetof(tide_device_stats, field), (count))
#define TIDE__COUNT(device, field) TIDE__COUNT_MANY(device, field, 1)
void tide__totals_oversize(tide_device_cache* device, bool is_rise);
// Memory of a kind (a TIDE_STAT_...) was parked, or is not any more.
void tide__totals_park(tide_device_cache* device, int kind, int64_t bytes);
// Counts blocks of a range that were committed; or decommitted, with negative numbers.
void tide__totals_commit(tide_device_cache* device, int64_t blocks, int64_t bytes);

// ---------------------------------------------------------------------------------------------------
// allowance.c: what the ledger of processes lets the cache have

// Before memory is taken from the machine, with the gate: TIDE_ERR_NO_MEMORY if the ledger has none now.
tide_status tide__allowance_take(tide_device_cache* device, uint64_t bytes);
// Memory that was taken so is reserved now, or went back.
void tide__allowance_undo(tide_device_cache* device, uint64_t bytes);
// At the end of a turn: gives the ledger what the cache does not have any more.
void tide__allowance_settle(tide_device_cache* device);
// Asks other processes for memory and tries again what has failed for lack of it. If the machine lacks it
// still, waits for that. Returns TIDE_ERR_NO_MEMORY without an attempt if nobody gives any. With no gate.
typedef tide_status (*tide__attempt_fn)(void* user);
tide_status tide__allowance_ask(tide_device_cache* device, uint64_t bytes, tide__attempt_fn again,
                                void* user);
// Joining and leaving are one at a time. Between these two, the caller may change the membership.
void tide__membership_change_begin(tide_device_cache* device);
void tide__membership_change_end(tide_device_cache* device);
// Takes a quota, which has granted so much, or NULL. The caller has the gate.
void tide__membership_set(tide_device_cache* device, tide_quota* quota, uint64_t granted);
// Leaves the quota and returns it when no call uses it any more; NULL: there is none. With no gate.
tide_quota* tide__membership_end(tide_device_cache* device);

// ---------------------------------------------------------------------------------------------------
// history.c

static inline bool tide__is_recording(tide_device_cache* device) {
  return (tide__load_relaxed(&device->detours) & (TIDE__RECORDS_HISTORY | TIDE__RECORDS_TRACE)) != 0;
}
// The context of a call, with the stack if the history's level is at least `level` (0: no stack); before any
// lock.
tide__call_context tide__context_now(tide_device_cache* device, uint32_t level);
// Adds an entry about memory of a lane, or of none; see tide__history_add().
void tide__entry_add(tide_device_cache* device, tide_action action, const tide__call_context* context,
                     uint32_t stack, const tide__lane* lane, uint64_t address, uint64_t bytes);

// Tells observers that memory of a lane is about to go back to the machine, after all entries before. The
// caller has the gate, which is left meanwhile. Nothing is kept in the history: tide__end_keep() does that
// when the memory is gone. If it is not, tide__end_revoke() reports that it came, with `action` for that.
void tide__end_announce(tide_device_cache* device, tide_action action, const tide__call_context* context,
                        uint32_t stack, const tide__lane* lane, uint64_t address, uint64_t bytes);
void tide__end_keep(tide_device_cache* device, tide_action action, const tide__call_context* context,
                    uint32_t stack, const tide__lane* lane, uint64_t address, uint64_t bytes);
void tide__end_revoke(tide_device_cache* device, tide_action action, const tide__call_context* context,
                      uint32_t stack, const tide__lane* lane, uint64_t address, uint64_t bytes);

// ---------------------------------------------------------------------------------------------------
// labels.c

// Keeps the label of a pool that is dropped, for entries that name the pool; and frees all labels. With no
// lock held.
void tide__labels_keep(tide_device_cache* device, const tide__pool* pool);
void tide__labels_forget(tide_device_cache* device);
// The label of a pool, present or dropped; false if it has none. `owner` is the allocator.
bool tide__labels_find(void* owner, tide_pool number, tide_pool_label* out);

// ---------------------------------------------------------------------------------------------------
// observer.c

void tide__observers_oom(tide_device_cache* device, const tide_oom* oom);
// Runs the callbacks of pressure, unless the thread is inside one; false if there are none.
bool tide__observers_press(tide_device_cache* device, const tide_pressure* pressure);

// ---------------------------------------------------------------------------------------------------
// reclaim.c

// Runs the functions that release memory, of the cache and of the process; true if one says that it did.
bool tide__observers_reclaim(tide_device_cache* device);

// ---------------------------------------------------------------------------------------------------
// pool.c

static inline tide__pool* tide__pool_of(tide__pool_base* base) {
  return base != NULL ? TIDE_OWNER(base, tide__pool, base) : NULL;
}
void tide__pools_start(tide_device_cache* device);
void tide__pool_init(tide__pool* pool, const tide_pool_options* options);
void tide__pool_fini(tide_device_cache* device, tide__pool* pool);
static inline tide__pool* tide__pool_find_locked(tide_device_cache* device, tide_pool number) {
  return tide__pool_of(tide__pools_find_locked(&device->pools, number));
}
// The same without the lock: the pool stays as long as the caller has the gate.
static inline tide__pool* tide__pool_find(tide_device_cache* device, tide_pool number) {
  return tide__pool_of(tide__pools_find(&device->pools, number));
}
// The next private pool of a walk; NULL at the end.
static inline tide__pool* tide__pool_next(tide_device_cache* device, tide__pool_cursor* at) {
  return tide__pool_of(tide__pools_next(&device->pools, at));
}
static inline bool tide__pool_is_used(tide_device_cache* device, const tide__pool* pool) {
  return tide__pools_is_used(&device->pools, &pool->base);
}
// Makes a request a guest of a pool if an open scope accepts it; and ends that.
void tide__pool_choose(tide__request* request);
static inline void tide__pool_leave(tide_device_cache* device, tide__pool* pool) {
  tide__pools_leave(&device->pools, &pool->base);
}
// Is its memory away, or about to be? The caller has the gate.
static inline bool tide__pool_is_away(const tide__pool* pool) {
  return pool->parked != NULL || pool->is_moving;
}
// Are its contents on their way, and not all streams wait for them? The caller has the gate.
static inline bool tide__pool_is_arriving(const tide_device_cache* device, const tide__pool* pool) {
  return pool->arrival_number > tide__max(device->arrival_over, device->arrival_all);
}
static inline const char* tide__pool_tag(tide__pool* pool) { return tide__load_relaxed(&pool->tag); }
// Drops private pools that have neither users nor memory.
void tide__pool_drop_unused(tide_device_cache* device);

// ---------------------------------------------------------------------------------------------------
// tags.c

// Is it a tag? And is another one the same, or below it? NULL covers all tags, but "" is none.
tide_status tide__tag_check(const char* call, const char* tag);
bool tide__tag_covers(const char* tag, const char* other);
// The same text, which stays as long as the allocator; "" for NULL.
tide_status tide__tag_keep(tide_device_cache* device, const char* call, const char* tag, const char** out);

// ---------------------------------------------------------------------------------------------------
// tag_tree.c

// The record of a text that tide__tag_keep() gave; NULL if there is none, or for "".
tide__tag* tide__tag_find(tide_device_cache* device, const char* kept);
// The same, made if it is new; NULL for "". Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__tag_make(tide_device_cache* device, const char* kept, tide__tag** out);
void tide__tags_free(tide_device_cache* device);
// Memory of a tag and of those above it has grown, or has become less; nothing happens without a tag.
void tide__tag_move_locked(tide__tag* tag, int64_t bytes);
static inline tide__tag* tide__tags_first(tide_device_cache* device) {
  return tide__load_acquire(&device->tags);  // pairs with tide__tag_make
}
static inline tide__tag* tide__pool_tag_record(tide__pool* pool) {
  return tide__load_relaxed(&pool->tag_record);
}
// Is a tag the same as another one, or below it? Everything is below NULL.
static inline bool tide__tag_is_under(const tide__tag* tag, const tide__tag* other) {
  while (tag != NULL && tag != other) tag = tag->parent;
  return tag == other;
}

// ---------------------------------------------------------------------------------------------------
// lane.c: lanes; block.c: blocks in chains

// The lane that the calling thread used last, and the allocator it belongs to: the record of a lane lives as
// long as its allocator.
typedef struct tide__lane_memory {
  uint64_t uid;
  tide__lane* lane;
  // Its pool and stream at that time: the record of a lane is reused when its pool is dropped.
  const tide__pool* pool;
  tide_stream stream;
  uint32_t drops;
} tide__lane_memory;
extern _Thread_local tide__lane_memory tide__last_lane;
// The lane of a stream in a pool, made if it is new.
tide_status tide__lane_find(tide_device_cache* device, tide__pool* pool, tide_stream stream,
                            tide__lane** out);
// The first lane of a pool, and the next one, by rising stream; NULL at the end.
tide__lane* tide__lane_next(tide_device_cache* device, tide__pool* pool, tide__lane* lane);
void tide__lane_fini(tide_device_cache* device, tide__lane* lane);
// A new lane of the default pool for an external stream, which no table finds; NULL if there is no memory.
tide__lane* tide__lane_new_external(tide_device_cache* device, tide_stream stream);
// The stream is gone: no request finds its lanes any more.
void tide__lanes_close(tide_device_cache* device, tide_stream stream);
// Gives the lanes of a pool, which must be empty, back to the allocator; and their tables.
void tide__lanes_drop_locked(tide_device_cache* device, tide__pool* pool) TIDE_REQUIRES(&device->pools_lock);
void tide__lane_tables_free(tide_device_cache* device, tide__pool* pool);
// Locks a lane that has at least two spare records, making some if it has fewer. If there is no memory for
// them, returns false with the error set and nothing locked.
bool tide__lane_lock_slowly(tide_device_cache* device, tide__lane* lane) TIDE_TRY_ACQUIRES(true, &lane->lock);
TIDE_UNCHECKED_LOCKING static inline bool tide__lane_lock_with_spares(tide_device_cache* device,
                                                                      tide__lane* lane)
    TIDE_TRY_ACQUIRES(true, &lane->lock) {
  tide__mutex_lock(&lane->lock);
  if (lane->spares != NULL && lane->spares->heap_next != NULL) return true;
  tide__mutex_unlock(&lane->lock);
  return tide__lane_lock_slowly(device, lane);
}
// Gives a lane at least `count` spare records.
tide_status tide__lane_add_spares(tide_device_cache* device, tide__lane* lane, size_t count);
tide__block* tide__lane_take_spare_locked(tide__lane* lane);
void tide__lane_give_spare_locked(tide__lane* lane, tide__block* block);
// Takes the two spare records that changing a block needs at most, while the lane is unlocked; and gives them
// back to the lane for the change.
tide_status tide__lane_hold_spares(tide_device_cache* device, tide__lane* lane, tide__block* out[2]);
void tide__lane_unhold_spares_locked(tide__lane* lane, tide__block* const held[2]);
// Notes that the calling thread works in this lane now; before the first change of a call. If it worked in
// another lane before, the tally of that lane is added to the totals first.
void tide__lane_change(tide_device_cache* device, tide__lane* lane);
static inline void tide__lane_turn(tide_device_cache* device, tide__lane* lane) {
  const tide__lane_memory* const last = &tide__last_lane;
  if (last->lane != lane || last->uid != device->uid ||
      last->drops != tide__load_relaxed(&device->lane_drops)) {
    tide__lane_change(device, lane);
  }
}
// The lane of a stream, made if it is new, in which the calling thread works from now on.
static inline tide_status tide__lane_enter(tide_device_cache* device, tide__pool* pool, tide_stream stream,
                                           tide__lane** out) {
  const tide__lane_memory* const last = &tide__last_lane;
  *out = last->lane;
  if (last->uid == device->uid && last->pool == pool && last->stream == stream &&
      last->drops == tide__load_relaxed(&device->lane_drops)) {
    return TIDE_OK;
  }
  TIDE_TRY(tide__lane_find(device, pool, stream, out));
  tide__lane_turn(device, *out);
  return TIDE_OK;
}
// Adds a tally to the totals.
void tide__tally_settle(tide_device_cache* device, tide__tally* tally);
// Counts one more change of a tally.
#define TIDE__TALLY_CHANGED(device, tally)                                                \
  do {                                                                                    \
    if (++(tally)->changes >= TIDE__TALLY_CHANGES) tide__tally_settle((device), (tally)); \
  } while (0)
// The tally in which the calling thread counts what it does in a lane; called before the lane is locked. It
// is the lane's own, or that of the thread cache, which this function enters and the next one leaves.
static inline tide__tally* tide__tally_enter(tide_device_cache* device, tide__lane* lane) {
  return device->has_tcaches ? &((tide__tcache*)tide__thread_caches_enter(&device->tcaches))->tally
                             : &lane->tally;
}
static inline void tide__tally_leave(tide_device_cache* device, tide__tally* tally) {
  if (device->has_tcaches) tide__thread_caches_leave(TIDE_OWNER(tally, tide__tcache, tally));
}

static inline tide__free_index* tide__block_free_index(const tide__block* block) {
  return &block->segment->lane->free_index[block->is_small ? TIDE__SMALL : TIDE__LARGE];
}
bool tide__block_is_whole(const tide__block* block);  // is it all of its segment?
static inline int tide__block_kind(const tide__block* block) {
  return block->is_small ? TIDE_STAT_SMALL : TIDE_STAT_LARGE;
}
// The bytes that an active block counts for: its own. In a home of small blocks it is what was requested,
// because a block there may be larger than its request.
uint64_t tide__block_counted_bytes(const tide__block* block);
// Puts a block into the free index, with a new age if `restamps`; and takes it out, BUSY.
void tide__free_index_put_locked(tide__block* block, bool restamps);
void tide__free_index_take_locked(tide__block* block);
void tide__free_index_put_unmapped_locked(tide__block* block);
void tide__free_index_take_unmapped_locked(tide__block* block);
// The next survey of a home looks at all its blocks.
void tide__notes_stop_locked(tide__home* home);
// Cuts `bytes` off the front of a block, or off its end, into a new record and returns that.
tide__block* tide__block_cut_front_locked(tide__lane* lane, tide__block* block, uint64_t bytes);
tide__block* tide__block_cut_back_locked(tide__lane* lane, tide__block* block, uint64_t bytes);
// Joins a block with a neighbour, or with its neighbours in state `state`, which leave their index. The
// block's own record stays.
void tide__block_absorb_prev_locked(tide__lane* lane, tide__block* block);
void tide__block_absorb_next_locked(tide__lane* lane, tide__block* block);
void tide__block_merge_locked(tide__lane* lane, tide__block* block, uint8_t state);
// Takes an idle block from `address` on out of the free index; what lies before it stays idle.
tide__block* tide__block_take_from_locked(tide__block* block, uint64_t address);
// Hands an idle or BUSY block out for a request, and returns its record. If `splits`, the rest is cut off
// first. Without `out` the block is only counted as handed out: it has no handle and is not in the map.
tide__block* tide__block_commit_locked(const tide__request* request, tide__block* block, bool splits,
                                       tide__tally* tally, tide_block* out);
// Makes a block idle whose wait is over.
void tide__block_wait_end_locked(tide_device_cache* device, tide__block* block,
                                 const tide__call_context* context, tide__tally* tally);
// Returns a list of lent pieces, by heap_next, to their segments. The lane `user` used them until their
// `last_use`; NULL: they were not used.
void tide__pieces_give(tide_device_cache* device, tide__block* pieces, tide__lane* user);
// Unlocks a lane in which blocks were ended, and returns the pieces of other lanes.
TIDE_UNCHECKED_LOCKING static inline void tide__lane_unlock_ended(tide_device_cache* device, tide__lane* lane)
    TIDE_RELEASES(&lane->lock) {
  tide__block* const pieces = lane->leaving;
  if (pieces != NULL) lane->leaving = NULL;
  tide__mutex_unlock(&lane->lock);
  if (pieces != NULL) tide__pieces_give(device, pieces, lane);
}
// Locks a lane that has spare records, and returns the tally of the calling thread; NULL if there is no
// memory for records. The second function ends both.
TIDE_UNCHECKED_LOCKING static inline tide__tally* tide__lane_open(tide_device_cache* device,
                                                                  tide__lane* lane) {
  tide__tally* const tally = tide__tally_enter(device, lane);
  if (tide__lane_lock_with_spares(device, lane)) return tally;
  tide__tally_leave(device, tally);
  return NULL;
}
TIDE_UNCHECKED_LOCKING static inline void tide__lane_shut(tide_device_cache* device, tide__lane* lane,
                                                          tide__tally* tally) {
  tide__lane_unlock_ended(device, lane);
  tide__tally_leave(device, tally);
}
// Makes a BUSY block idle that was never handed out.
void tide__block_return_locked(tide__block* block, bool restamps);
// Makes the part of a BUSY block from `from` to `to` unmapped, and what is left of it at both ends idle.
void tide__block_hollow_locked(tide__block* block, uint64_t from, uint64_t to);
// Takes back a block whose handle was ended; true if it must wait for other streams: see timeline.c.
bool tide__block_end_locked(tide_device_cache* device, tide__block* block, const tide__call_context* context,
                            tide__tally* tally);
// Takes back the block of a handle, which was used until `last_use`. It is refused if the handle is not valid
// any more. If the block must wait for other streams, the caller makes it wait.
typedef enum tide__release { TIDE__RELEASE_REFUSED, TIDE__RELEASE_DONE, TIDE__RELEASE_WAITS } tide__release;
tide__release tide__block_release(tide_device_cache* device, tide__block* block, uint64_t handle,
                                  uint64_t last_use, const tide__call_context* context);
// Where the block of a handle lies. While the caller has the gate, its segment and handles stay where they
// are.
// Errors: TIDE_ERR_HANDLE if the block is not handed out any more; `call` names the call in the text.
typedef struct tide__place {
  const tide__segment* segment;  // NULL: uncached memory
  uint64_t address;
  uint64_t bytes;
} tide__place;
tide_status tide__block_place(tide_device_cache* device, tide_block block, const char* call,
                              tide__place* out);
// Adds an entry about a block that is released to the history.
void tide__block_record_free(tide_device_cache* device, tide_action action, const tide__block* block,
                             const tide__call_context* context);

#endif
