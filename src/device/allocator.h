// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The inside of the device allocator: its structures, and every function that its files share, grouped by
// the file that has it.
//
//   tide_device        one allocator: pools, the map of addresses, waiting blocks, statistics, history
//     pool             the default one and private ones; memory never moves from one to another
//       lane           the memory of one stream in a pool, with its lock
//         shelf        the idle blocks of a lane, small or large ones
//         segment      memory from the machine, cut into a chain of blocks
//     racks            of each thread, with the policy `tide`: small blocks at hand, and what it counted
//
// Locks are ranked in base/lock.h. The gate is no lock: it is a turn that a thread takes to grow or shrink
// the allocator, which takes calls of the machine. Requests that find cached memory, releases and records
// never wait for it.
#ifndef TIDEMARK_SRC_DEVICE_ALLOCATOR_H
#define TIDEMARK_SRC_DEVICE_ALLOCATOR_H

#include "base/arith.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/list.h"
#include "core/askers.h"
#include "core/bins.h"
#include "core/front.h"
#include "core/history.h"
#include "core/map.h"
#include "core/tally.h"
#include "tidemark/device.h"

#define TIDE__SMALL_BYTES ((uint64_t)1 << 20)          // the largest small request, rounded
#define TIDE__SMALL_SEGMENT_BYTES ((uint64_t)2 << 20)  // a segment of small blocks
#define TIDE__OWN_SEGMENT_BYTES ((uint64_t)10 << 20)   // requests from here on have a segment of their own,
#define TIDE__SEGMENT_STEP ((uint64_t)2 << 20)         // a multiple of this
#define TIDE__MAX_REQUEST ((uint64_t)1 << 60)
#define TIDE__MAX_SCOPES 64
#define TIDE__TALLY_CHANGES 1024                   // changes a lane or a thread keeps to itself at most,
#define TIDE__TALLY_BYTES_KEPT ((int64_t)4 << 20)  // and of large blocks of the policy `tide`, bytes

struct tide__lane;
struct tide__pool;

// A stream, other than its own, that uses a block.
typedef struct tide__use {
  struct tide__use* next;  // borrowed; shared under the lane's lock
  tide_stream stream;
  int device;        // of the stream
  bool is_captured;  // announced while the stream was captured
} tide__use;

// Nodes of a capture.
typedef struct tide__markers {
  uint64_t capture;
  size_t count;
  tide_node nodes[];
} tide__markers;

struct tide__segment;

// The last use of a range of a handle by one lane; offsets in the handle.
typedef struct tide__user {
  struct tide__lane* lane;  // NULL: none
  uint64_t stamp;
  uint64_t from;
  uint64_t to;
} tide__user;

enum { TIDE__HANDLE_USERS = 4 };

// Physical memory of the policy `tide`. It has a place at its home, where it is mapped or will be when that
// is needed, and may be mapped in any number of views besides; nothing is unmapped on the way.
typedef struct tide__handle {
  tide_physical physical;  // owned
  uint64_t address;        // at home
  uint64_t bytes;
  struct tide__segment* home;
  bool is_mapped;  // at home; changes with the gate and the lock of the home's lane
  bool is_odd;     // not mapped at home, or other lanes may still use it; under that lock, like
  uint64_t crowd;  // number of the crowd it was in last; 0: none: see marks.c
  tide__user users[TIDE__HANDLE_USERS];
  uint32_t view_places;  // mappings in views; touched with the gate, like the rest
  bool is_shared;        // another process may have it: lent to nobody until it is wholly idle
  bool prefix_waits;     // as a survey found it: who takes what is idle at its beginning must wait,
  bool suffix_waits;     // or at its end;
  tide__block* first;    // the block over its first byte;
  uint64_t prefix;       // how much is idle at its beginning,
  uint64_t suffix;       // and at its end
} tide__handle;

// Handles under a range of addresses, and how far behind the beginning of the first that begins.
typedef struct tide__span {
  tide__handle* const* handles;  // borrowed as long as the caller has the gate
  size_t count;
  uint64_t offset;
} tide__span;

// What a segment has that is the home of handles: addresses for more than the device has, filled from the low
// end. The last block of its chain is UNMAPPED and takes in what will be made.
typedef struct tide__home {
  tide__link link;  // among the homes of large blocks of the allocator, by age; with the gate
  struct tide__segment* segment;
  tide__block* top;        // the last block; NULL when the addresses are used up
  tide__handle** handles;  // owned, by address; they change with the gate and the lane's lock
  size_t count;
  size_t capacity;
  uint32_t odd_count;  // of its handles; under the lane's lock
} tide__home;

// A range of addresses that is reserved for views; key: its bytes, tie: where it begins.
typedef struct tide__addresses {
  tide__tree_node node;  // among the idle ones
} tide__addresses;

// What a segment has that is a view: handles mapped one behind the other, whatever their order at home.
typedef struct tide__view {
  tide__addresses* addresses;  // owned
  tide__handle** handles;      // owned; NULL where one was given back
  uint64_t* offsets;           // owned
  size_t count;
  uint32_t live;      // blocks in it; under the lane's lock
  bool is_broken;     // a handle is missing, or it is retired: it serves no more
  bool is_retired;    // it is unmapped when its last use has passed; with the gate, like
  uint64_t used_at;   // the number of the stitch or use
  uint64_t last_use;  // stamp of the last release of a block in it; under the lane's lock
} tide__view;

// A range with all that is to be given back of it. What the machine would not unmap, because mapping it had
// failed half way or when it was closed, is tried again later.
typedef struct tide__stuck {
  struct tide__stuck* next;
  uint64_t address;
  uint64_t bytes;        // that are mapped
  uint64_t range_bytes;  // of addresses to be given back from there on; 0: none
  size_t capacity;
  size_t count;
  tide_physical handles[];  // owned; to be given back as well
} tide__stuck;

// Raw memory that could not be used, and that the machine would not take back: tried again later. The record
// is made before the memory is asked for.
typedef struct tide__stray {
  struct tide__stray* next;
  void* address;
} tide__stray;

// Memory from the machine.
// [S1] the chain from `head` has no gap; its bytes add up to `bytes`
typedef struct tide__segment {
  tide__link link;          // in the lane
  struct tide__lane* lane;  // borrowed
  tide__block* head;        // shared under the lane's lock
  uint64_t address;
  uint64_t bytes;
  uint64_t ordinal;
  uint64_t tie_origin;  // taken off addresses for ties: 0, or so much that older segments come first
  uint32_t stack;
  bool is_small;
  bool is_expandable;
  bool is_tied_by_age;
  // Of an expandable one; touched by the thread that has the gate.
  uint64_t handle_bytes;
  size_t handle_capacity;
  tide_physical* handles;  // owned; NULL where nothing is mapped
  // Of the policy `tide`; owned. At most one is set, and is_expandable with it.
  tide__home* home;
  tide__view* view;
} tide__segment;

// Idle blocks of one lane.
typedef struct tide__shelf {
  tide__bins bins;
  tide__tree unmapped;  // blocks without memory, by address
} tide__shelf;

enum { TIDE__LARGE = 0, TIDE__SMALL = 1 };

// The marks of a lane: see marks.c. [M1] events of the marks above `passed` up to `made` are recorded, in the
// order of their numbers [M2] made - passed <= capacity
typedef struct tide__marks {
  tide__mutex lock;         // guards is_taken
  tide__signal left;        // nobody has the turn
  bool is_taken;            // a thread has the turn, and what follows
  tide_event* events;       // owned; that of mark n at n modulo capacity
  uint32_t capacity;        // 0 or a power of two
  tide__atomic_u64 made;    // the number of the last one
  tide__atomic_u64 passed;  // all up to this one have passed
} tide__marks;

// The memory of one stream in one pool.
typedef struct tide__lane {
  tide__mutex lock;         // guards the shelves, the segments and all their blocks
  struct tide__pool* pool;  // borrowed
  tide_stream stream;
  _Atomic(tide_stream) key;  // by which it is found: the stream, or when that is closed, itself
  tide__shelf shelves[2];
  tide__link segments;
  tide__block* spares;  // records for blocks to come
  tide__use* spare_uses;
  tide__tally tally;
  uint32_t number;          // lanes of a pool are numbered as they are made
  tide__segment* homes[2];  // the newest of each kind, or NULL; with the gate
  size_t view_count;        // likewise
  bool is_held;             // by who has the gate, with others; likewise
  uint64_t wanted;          // a mark of this lane that another is about to wait for; likewise
  tide__marks marks;
  tide__atomic_u32 makes_marks;  // large blocks get a mark when they are released
  tide__atomic_u32 is_closed;    // the stream is gone: no call is made on it, and no request finds the lane
  tide__atomic_u64 crowd_stamp;  // of its last use of a handle that had no place for it
  uint64_t unmarked;             // stamp of its last release without a mark of its own
  uint64_t* waited;  // owned; by the number of another lane, its last mark that this one waits for
  uint32_t waited_count;
  tide__block* leaving;          // pieces of other lanes whose block was released here, by heap_next
  uint64_t puts;                 // how often a block became idle, and
  uint64_t takes;                // how often an idle one was taken; both under the lock
  uint64_t pin_steps;            // blocks that reports of refusals looked at; likewise
  uint64_t walk_puts[2];         // `puts` as a walk for idle memory of a kind began; with the gate
  uint64_t barren_puts[2];       // and of the last one that gave back all it could, + 1; likewise
  struct tide__lane* next;       // in the pool, by rising stream; shared under the pools lock
  struct tide__lane* next_idle;  // among the lanes of pools that are gone
} tide__lane;

enum { TIDE__RACK_SHELVES = 64, TIDE__RACKS = 8 };
#define TIDE__RACK_BYTES ((uint64_t)512 << 10)  // of the last shelf, and the largest request it serves

// Small blocks of one lane that a thread has at hand, by size classes. [K1] bit n of `filled` is set iff
// shelf n is not empty [K2] a block is in the last shelf whose class it can serve
typedef struct tide__rack_shelf {
  tide__block* head;  // by heap_next; the newest first
  uint8_t count;
  uint8_t limit;
  uint8_t fill;  // how many were taken from the lane last: twice as many the next time
} tide__rack_shelf;

typedef struct tide__rack {
  _Atomic(tide__lane*) lane;  // of the default pool; NULL: not in use; others only look whose it is
  tide_stream stream;
  uint64_t filled;
  tide__rack_shelf shelves[TIDE__RACK_SHELVES];
} tide__rack;

// What a thread has for itself: its front of the allocator.
typedef struct tide__racks {
  tide__front front;
  tide__rack* newest;  // one of them, borrowed
  tide__tally tally;
  tide__rack racks[TIDE__RACKS];
} tide__racks;

// A place in the table that finds a lane by its stream.
typedef struct tide__lane_table {
  struct tide__lane_table* older;  // replaced ones; readers may still look there
  uint32_t mask;
  _Atomic(tide__lane*) places[];
} tide__lane_table;

typedef struct tide__pool {
  tide__tree_node node;  // in the order in which PyTorch walks over pools; shared under the pools lock
  tide_pool number;
  uint32_t users;   // shared under the pools lock
  uint32_t guests;  // requests under way, likewise: they keep the pool from being dropped
  bool has_scope;   // likewise
  tide__atomic_u32 no_split;
  tide__atomic_u32 use_on_oom;
  tide__atomic_u64 searches[2];  // of each shelf kind: the clock of collection
  tide__atomic_u64 reserved_bytes;
  tide_pool_options options;
  _Atomic(tide__lane_table*) table;  // owned
  tide__lane* lanes;                 // by rising stream; shared under the pools lock
  uint32_t lane_count;               // likewise
  struct tide__pool* next_idle;      // among those that are gone
} tide__pool;

// The label of a pool that is gone.
typedef struct tide__gone_label {
  struct tide__gone_label* next;
  tide_pool_label label;
  tide_pool number;
} tide__gone_label;

// What decisions depend on; never changed once published.
typedef struct tide__settings {
  tide_device_options options;
  struct tide__settings* older;
} tide__settings;

typedef struct tide__scope {
  tide__pool* pool;
  uint64_t number;  // of no other scope
  tide_scope scope;
  uint64_t thread;
} tide__scope;

// A block that waits for one event.
typedef struct tide__wait {
  struct tide__wait* next;
  tide__block* block;
  tide_event event;
  int device;        // of the event
  bool is_captured;  // the event belongs to a capture: it cannot be asked
  uint64_t number;   // rising
} tide__wait;

// The blocks that wait for one stream, in the order they were released.
typedef struct tide__queue {
  struct tide__queue* next;
  tide_stream stream;
  int device;  // of the stream
  tide__wait* first;
  tide__wait* last;
} tide__queue;

// Blocks that were released while other streams still use them.
typedef struct tide__timeline {
  tide__mutex lock;        // guards all below
  tide__signal changed;    // nobody polls any more
  bool is_polling;         // one thread looks at the events, without the lock
  tide__queue* queues;     // owned, in the order of first use
  tide__wait* idle_waits;  // owned, each with an event
  tide__block* deferred;   // released in a scope, or without an event: they get events later
  tide__block* deferred_last;
  uint64_t next_number;      // of the next wait
  tide__atomic_u64 waiting;  // blocks in queues and among the deferred
} tide__timeline;

// Bits of tide_device.detours.
enum {
  TIDE__RECORDS_HISTORY = 1,
  TIDE__RECORDS_TRACE = 2,
  TIDE__HAS_SCOPES = 4,
  TIDE__IS_UNCACHED = 8,
  TIDE__IS_AUDITED = 16,
  TIDE__HAS_NO_RACKS = 32,
  TIDE__IS_INHERITED = 64  // this process is a child of the one that made the allocator
};

// Memory of another process that is open here.
typedef struct tide__import {
  struct tide__import* next;
  tide_share share;
  uint64_t base;
  uint64_t bytes;      // of the reservation, or of a raw one, as the machine says
  tide__stuck* parts;  // owned; what is to be given back in the end; NULL for a raw one
  uint32_t uses;
} tide__import;

struct tide_device {
  tide_machine* machine;  // borrowed until the allocator is freed; NULL at its end if it could not wait
  int index;
  const tide_heap* heap;  // borrowed until the allocator is freed
  uint32_t id;            // a number below 64 that no other living allocator has, if has_own_id
  bool has_own_id;
  uint64_t uid;          // a number that no other allocator ever has
  uint64_t total_bytes;  // of the device
  uint64_t granularity;
  bool has_physical_sharing;
  bool waits_on_release;  // the machine itself waits for work before it takes raw memory back
  _Atomic(tide__settings*) settings;
  tide__atomic_u64 limit;
  tide__atomic_u64 reserved_bytes;
  tide__atomic_u32 lane_drops;  // how often lanes were taken from a pool
  bool has_racks;               // threads have racks, and count in them
  tide__atomic_u32 detours;     // bits: what keeps calls from the short way
  tide__fork_note fork_note;
  tide__atomic_u32 scope_count;
  tide__fronts fronts;  // with racks
  tide__atomic_u64 next_ordinal;
  tide__slots blocks;
  tide__map map;
  tide__timeline timeline;
  tide__history history;

  tide__mutex gate_lock;  // guards the gate
  tide__signal gate_open;
  bool is_gate_taken;
  tide__atomic_u64 gate_turn;  // how many turns there were
  // Touched by the thread that has the gate.
  tide_physical* orphans;  // owned; handles that the machine would not take back yet
  size_t orphan_count;
  size_t orphan_capacity;
  uint32_t peers[TIDE_DEVICE_MAX];
  uint32_t peer_count;
  tide__import* imports;         // owned
  struct tide__offers* offers;   // owned; NULL before the first
  tide__link homes;              // of the policy `tide`, for large blocks, by age
  uint64_t view_uses;            // stitches and uses of views so far
  uint64_t view_bytes;           // of addresses
  size_t view_count;             // both without retired ones
  size_t retired_count;          // of views
  tide__atomic_u32 most_pieces;  // of a block so far
  tide__tree idle_addresses;     // owned; of views that are gone
  uint64_t stitch_clock_ns;      // when time was looked at last, and
  double stitch_ns_left;         // how much of it may go into making views before more has passed
  tide__stuck* stuck;            // owned
  uint64_t flushed_at;           // small_served when all racks were emptied last
  tide__atomic_u64 crowds;       // how many there were, and
  tide__atomic_u64 crowds_over;  // up to which all work has passed

  tide__mutex pools_lock;  // guards all below
  tide__pool default_pool;
  tide__tree pools;  // private ones
  tide_pool next_pool;
  tide__lane* idle_lanes;
  tide__pool* idle_pools;
  tide__stray* strays;  // owned
  tide__scope scopes[TIDE__MAX_SCOPES];
  uint64_t next_scope;
  tide__askers askers;            // of filters
  tide__gone_label* gone_labels;  // owned; the oldest first
  tide__gone_label* gone_last;
  size_t gone_count;

  tide__mutex totals_lock;  // guards the statistics
  tide_device_stats totals;
  tide_device_stats totals_at_reset;  // when the sums were last set to 0
  uint64_t peak_large;                // like the peak of active_bytes of large blocks; nobody sets it back
  uint64_t small_served;              // small requests so far, likewise
};

typedef tide__call_context tide__moment;  // the name that timeline.c and rack.c have for it

// One request on its way.
typedef struct tide__request {
  tide_device* device;
  const tide_device_options* options;  // borrowed; they live as long as the allocator
  const struct tide__policy* policy;
  tide__lane* lane;
  tide__pool* pool;
  tide_stream stream;
  uint64_t bytes;  // as asked for
  uint64_t rounded;
  uint64_t segment_bytes;  // of a segment that would be made for it
  tide__call_context moment;
  uint64_t gate_turn;  // when the request was made
  int shelf;           // TIDE__SMALL or TIDE__LARGE
  bool has_scopes;     // some were open when the request was made
  bool is_capturing;
  bool is_rejected;     // it failed for the option rejects_early
  bool is_borrowing;    // of the default pool, from one that lends
  tide__pool* visited;  // a private pool that this request stays in
} tide__request;

// How an allocator decides. Functions named `locked` are called with the lane's lock held.
typedef struct tide__policy {
  const char* name;
  uint64_t small_bytes;  // the largest small request, rounded
  // The size of a block for a request, and of a segment made for such a block.
  uint64_t (*round)(const tide_device_options* options, uint64_t bytes);
  uint64_t (*segment_bytes)(const tide_device_options* options, uint64_t rounded);
  // Takes an idle block that fits out of the shelf, or returns NULL.
  tide__block* (*choose_locked)(const tide__request* request);
  // Is the rest of the block cut off and kept?
  bool (*splits)(const tide__request* request, const tide__block* block);
  // May a chosen block be handed out at once? Otherwise it is prepared first, with no lock held; the block is
  // BUSY, and idle again and NULL on failure, or if it cannot be had now. NULL: always.
  bool (*is_ready_locked)(const tide__request* request, const tide__block* block);
  tide_status (*prepare)(tide__request* request, tide__block** inout);
  // Finds memory where the shelf has none: grows, gives back, waits. The block is BUSY and no lock is held.
  tide_status (*recover)(tide__request* request, tide__block** out);
} tide__policy;

// A request in whole grains, or in the steps of roundup_divisions.
uint64_t tide__round_divided(const tide_device_options* options, uint64_t bytes);

extern const tide__policy tide__policy_torch;
extern const tide__policy tide__policy_tide;
// A rung of both: looks into the idle memory of pools that offer it to requests that would fail.
tide_status tide__rung_borrow(tide__request* request, tide__block** out);
// How memory of a pool is decided about: pools with functions of their own for segments, and those in which
// each block is a segment, always as in torch.
static inline const tide__policy* tide__policy_of(const tide_device_options* options, tide__pool* pool) {
  const bool is_tide = options->policy == TIDE_POLICY_TIDE && pool->options.segment_alloc == NULL &&
                       !tide__load_relaxed(&pool->no_split);
  return is_tide ? &tide__policy_tide : &tide__policy_torch;
}

// --- alloc.c ------------------------------------------------------------------------------------------

// Sets how the request's pool decides, and the sizes that follow from it.
void tide__request_decide(tide__request* request);

// --- device.c: settings, the gate -------------------------------------------------------------------
static inline const tide_device_options* tide__device_options(tide_device* device) {
  return &tide__load_acquire(&device->settings)->options;  // pairs with settings_publish
}
// In a child of a fork the memory is still the parent's, and locks may be held for ever.
static inline bool tide__is_inherited(tide_device* device) {
  return (tide__load_relaxed(&device->detours) & TIDE__IS_INHERITED) != 0;
}
tide_status tide__inherited_refuse(const char* call);
// For calls off the short way: refuses an allocator that was inherited.
#define TIDE__REQUIRE_OWN(device, call)     \
  do {                                      \
    if (tide__is_inherited(device)) {       \
      (void)tide__inherited_refuse((call)); \
      return TIDE_ERR_STATE;                \
    }                                       \
  } while (0)
// Waits for the turn to grow or shrink; returns how many turns there were before.
uint64_t tide__gate_enter(tide_device* device);
void tide__gate_leave(tide_device* device);
// A number for the calling thread that no other living thread has.
uint64_t tide__thread_number(void);
// Does the allocator behave as in a capture: while a scope is open, or by option while the stream is
// captured?
bool tide__is_capturing(tide_device* device, tide_stream stream);
bool tide__has_scopes(tide_device* device);
// Sets or clears a bit of `detours`.
void tide__detour(tide_device* device, uint32_t bit, bool is_set);

// --- lane.c: lanes, blocks in chains ------------------------------------------------------------------
// The lane that the calling thread used last, and the allocator it belongs to: the record of a lane lives as
// long as its allocator.
typedef struct tide__lane_memory {
  uint64_t uid;
  tide__lane* lane;
  // For whom it was: the record of a lane is used for another pool or stream when its pool is gone.
  const tide__pool* pool;
  tide_stream stream;
  uint32_t drops;
} tide__lane_memory;
extern _Thread_local tide__lane_memory tide__last_lane;
// The lane of a stream in a pool, made if it is new.
tide_status tide__lane_find(tide_device* device, tide__pool* pool, tide_stream stream, tide__lane** out);
static inline tide_status tide__lane_get(tide_device* device, tide__pool* pool, tide_stream stream,
                                         tide__lane** out) {
  const tide__lane_memory* const last = &tide__last_lane;
  const bool is_same = last->uid == device->uid && last->pool == pool && last->stream == stream &&
                       last->drops == tide__load_relaxed(&device->lane_drops);
  if (!is_same) return tide__lane_find(device, pool, stream, out);
  *out = last->lane;
  return TIDE_OK;
}
// The first lane of a pool, and the one after; NULL at the end. By rising stream.
tide__lane* tide__lane_next(tide_device* device, tide__pool* pool, tide__lane* lane);
void tide__lane_fini(tide_device* device, tide__lane* lane);
// Gives the lanes of a pool back to the allocator, which must be empty; and the tables that find them.
void tide__lanes_drop_locked(tide_device* device, tide__pool* pool) TIDE_REQUIRES(&device->pools_lock);
void tide__lane_tables_free(tide_device* device, tide__pool* pool);
// Sees to it that the lane has at least two spare records and locks it. False, with the reason in the
// thread's record and nothing locked, if there is no memory for them.
bool tide__lane_lock_with_spares(tide_device* device, tide__lane* lane) TIDE_TRY_ACQUIRES(true, &lane->lock);
// Sees to it that a lane has `count` spare records.
tide_status tide__lane_add_spares(tide_device* device, tide__lane* lane, size_t count);
tide__block* tide__lane_take_spare_locked(tide__lane* lane);
void tide__lane_give_spare_locked(tide__lane* lane, tide__block* block);
// Says that the calling thread works in this lane now; before the first change of a call. If it worked in
// another lane before, what that counted is added to the totals first.
void tide__lane_change(tide_device* device, tide__lane* lane);
static inline void tide__lane_turn(tide_device* device, tide__lane* lane) {
  const tide__lane_memory* const last = &tide__last_lane;
  if (last->lane != lane || last->uid != device->uid ||
      last->drops != tide__load_relaxed(&device->lane_drops)) {
    tide__lane_change(device, lane);
  }
}
// Adds what was counted to the totals: now, or when enough has come together.
void tide__tally_settle(tide_device* device, tide__tally* tally);
static inline void tide__tally_count(tide_device* device, tide__tally* tally) {
  if (++tally->changes >= TIDE__TALLY_CHANGES) tide__tally_settle(device, tally);
}
// Where the calling thread counts what it does in a lane, before that is locked: the lane's own tally, or
// that of its racks, which it is inside of until it leaves them.
static inline tide__tally* tide__tally_enter(tide_device* device, tide__lane* lane) {
  return device->has_racks ? &((tide__racks*)tide__fronts_enter(&device->fronts))->tally : &lane->tally;
}
static inline void tide__tally_leave(tide_device* device, tide__tally* tally) {
  if (device->has_racks) tide__fronts_leave(TIDE_OWNER(tally, tide__racks, tally));
}

static inline tide__shelf* tide__block_shelf(const tide__block* block) {
  return &block->segment->lane->shelves[block->is_small ? TIDE__SMALL : TIDE__LARGE];
}
static inline bool tide__block_is_whole(const tide__block* block) {
  return block->prev == NULL && block->next == NULL;
}
static inline int tide__block_kind(const tide__block* block) {
  return block->is_small ? TIDE_STAT_SMALL : TIDE_STAT_LARGE;
}
// What an active block counts for: its bytes, but of a small home what was asked for, because a block there
// may be larger than its request.
static inline uint64_t tide__block_counted_bytes(const tide__block* block) {
  if (!block->is_small || block->segment == NULL || block->segment->home == NULL) return block->bytes;
  return tide__round_up(tide__load_relaxed(&block->requested_bytes), TIDE__GRAIN);
}
// Puts a block among the idle ones; `restamps`: its age begins now.
static inline void tide__shelf_put_locked(tide__block* block, bool restamps) {
  tide__shelf* const shelf = tide__block_shelf(block);
  block->state = TIDE__BLOCK_FREE;
  block->tie = block->address - block->segment->tie_origin;
  if (restamps) {
    const int kind = block->is_small ? TIDE__SMALL : TIDE__LARGE;
    block->stamp = tide__load_relaxed(&block->segment->lane->pool->searches[kind]);
    block->segment->lane->puts++;
  }
  tide__bins_put(&shelf->bins, block);
}

static inline void tide__shelf_take_locked(tide__block* block) {
  tide__bins_take(&tide__block_shelf(block)->bins, block);
  block->segment->lane->takes++;
  block->state = TIDE__BLOCK_BUSY;
}
void tide__shelf_put_unmapped_locked(tide__block* block);
void tide__shelf_take_unmapped_locked(tide__block* block);
// Cuts `bytes` off the front of a block into a new record before it and returns that; or off its end, behind
// it.
tide__block* tide__block_cut_front_locked(tide__lane* lane, tide__block* block, uint64_t bytes);
tide__block* tide__block_cut_back_locked(tide__lane* lane, tide__block* block, uint64_t bytes);
// Joins a block with a neighbour, or with its neighbours in state `state`, taking these out of their index.
// The block's own record stays.
void tide__block_absorb_prev_locked(tide__lane* lane, tide__block* block);
void tide__block_absorb_next_locked(tide__lane* lane, tide__block* block);
void tide__block_merge_locked(tide__lane* lane, tide__block* block, uint8_t state);
// Takes an idle block from `address` on out of its shelf; what lies before it stays idle.
tide__block* tide__block_take_from_locked(tide__block* block, uint64_t address);
// Hands a BUSY block out for a request, cutting off what it does not need if `splits`; returns its record.
// Without `out` it is only counted as handed out, and nobody can find it.
tide__block* tide__block_commit_locked(const tide__request* request, tide__block* block, bool splits,
                                       tide__tally* tally, tide_block* out);
// Makes a block idle whose wait is over.
void tide__block_wait_end_locked(tide_device* device, tide__block* block, const tide__call_context* moment,
                                 tide__tally* tally);
// Gives the lock of a lane back in which blocks were ended: pieces of other lanes go home.
void tide__lane_unlock_ended(tide_device* device, tide__lane* lane) TIDE_RELEASES(&lane->lock);
// Puts a BUSY block that was never handed out back.
void tide__block_return_locked(tide__block* block, bool restamps);
// Takes a block back whose handle was ended; true if it must wait for other streams: see timeline.c.
bool tide__block_end_locked(tide_device* device, tide__block* block, const tide__call_context* moment,
                            tide__tally* tally);
// Keeps an entry about a block that is released.
void tide__block_record_free(tide_device* device, tide_action action, const tide__block* block,
                             const tide__call_context* moment);

// --- rack.c: small blocks at hand -------------------------------------------------------------------
tide_status tide__racks_init(tide_device* device);
// May a request be served from racks?
static inline bool tide__racks_serve(const tide__request* request) {
  return request->device->has_racks && request->shelf == TIDE__SMALL &&
         request->pool == &request->device->default_pool && !request->is_capturing;
}
// Serves such a request, filling a rack from the lane. *out_found is false if that has no memory.
tide_status tide__racks_search(tide__request* request, tide_block* out, bool* out_found);
// Takes a racked block back whose handle was ended.
void tide__racks_release_slow(tide_device* device, tide__block* block);
// Puts all blocks that threads have at hand back into their lanes, or those of one lane; false: there were
// none.
void tide__racks_flush(tide_device* device);
bool tide__racks_flush_lane(tide_device* device, const tide__lane* lane);
// No thread has blocks of a lane at hand whose stream is closed.
void tide__racks_forget_closed(tide_device* device);
// Flushes a lane, and cuts off what blocks of it have beyond their requests.
void tide__racks_squeeze(tide_device* device, tide__lane* lane);
// Adds what the calling thread counted to the totals, or what all did.
void tide__racks_settle_own(tide_device* device);
void tide__racks_settle(tide_device* device);
// How many blocks threads have at hand.
uint64_t tide__racks_count(tide_device* device);

// --- segment.c: segments of raw memory ---------------------------------------------------------------
// Makes a segment for a request; its one block is BUSY. TIDE_ERR_NO_MEMORY when the device is full.
tide_status tide__segment_grow(const tide__request* request, tide__block** out);
// A record for raw memory that is about to be asked for. Giving the memory back ends it, or keeps it until
// the machine has the memory; it is freed where the memory is used.
tide_status tide__stray_new(tide_device* device, tide__stray** out);
void tide__stray_free(tide_device* device, tide__stray* stray);
void tide__stray_give(tide_device* device, tide__stray* stray, void* address);
void tide__strays_retry(tide_device* device);
// Gives a whole segment back whose one block is BUSY. On failure the block is idle again.
tide_status tide__segment_release(tide_device* device, tide__segment* segment,
                                  const tide__call_context* moment);
tide__segment* tide__segment_new(tide_device* device, tide__lane* lane, bool is_small);
void tide__segment_free(tide_device* device, tide__segment* segment);
// Links the segment into its lane with one block.
tide__block* tide__segment_link_locked(tide__segment* segment, uint64_t address, uint64_t bytes,
                                       uint8_t state);
void tide__segment_unlink_locked(tide__segment* segment);
void tide__reserved_rise(tide_device* device, tide__pool* pool, uint64_t bytes, int kind, bool is_segment);
void tide__reserved_fall(tide_device* device, tide__pool* pool, uint64_t bytes, int kind, bool is_segment);
// Waits until no work of the lane's stream uses its idle memory; unless `is_always`, only where the machine
// does not do so itself when it takes raw memory back.
tide_status tide__lane_quiesce(tide_device* device, const tide__lane* lane, bool is_always);

// --- expand.c: segments of virtual memory -----------------------------------------------------------
tide_status tide__expand_grow(const tide__request* request, tide__block** out);
// Unmaps the whole handles inside an idle block that the caller made BUSY, and gives the rest back.
tide_status tide__expand_shrink(tide_device* device, tide__block* block, const tide__call_context* moment);
// Gives the addresses back of segments in which nothing is mapped any more.
void tide__expand_drop_unmapped(tide_device* device, tide__lane* lane);
tide_status tide__expand_add_peer(tide_device* device, int peer);
// For the end of the allocator: gives the memory of a segment back, whatever uses it.
void tide__expand_destroy(tide_device* device, tide__segment* segment);
// Handles that the machine would not take back are kept and tried again, so that no fault of it loses memory.
// Makes room for the records of `count` more; gives one back; tries all again.
tide_status tide__orphans_reserve(tide_device* device, size_t count);
void tide__physical_give(tide_device* device, tide_physical handle);
// Makes one; if there is no memory for it, those that are kept go first.
tide_status tide__physical_new(tide_device* device, uint64_t bytes, tide_physical* out);
void tide__expand_free_orphans(tide_device* device);
// Lets the device and its peers use a mapped range.
tide_status tide__access_give(tide_device* device, uint64_t address, uint64_t bytes);
// How many bytes of addresses a segment of virtual memory should have.
uint64_t tide__reserve_wanted(const tide_device* device, const tide_reserve* reserve);

// --- home.c: where the memory of the policy `tide` lives ----------------------------------------------
// The gate is the caller's, except where a function is named `locked`.
// How large new handles for a request are, and how much may be made of them before old memory is stitched.
typedef struct tide__growth {
  uint64_t handle_bytes;
  uint64_t slack_left;
  uint64_t idle_left;  // the same for a small program, before a view is used
  uint64_t limit_left;
  bool can_wait;  // the request's stream may wait for marks of others
} tide__growth;
// The smallest handle; all are multiples of it.
uint64_t tide__home_unit(tide_device* device);
// Makes memory at the top of the home of a request's lane and shelf, behind what is idle there; the block is
// BUSY. TIDE_OK without one if that would be more than `most` bytes.
tide_status tide__home_grow(const tide__request* request, const tide__growth* growth, uint64_t most,
                            tide__block** out);
// The newest home of the request's lane and shelf, with addresses for `bytes` more.
tide_status tide__home_with_room(const tide__request* request, uint64_t bytes, tide__segment** out);
// Takes addresses from the top of a home, BUSY, and back.
tide__block* tide__home_cut_top_locked(tide__segment* segment, uint64_t bytes);
void tide__home_uncut_top_locked(tide__segment* segment, tide__block* block);
// Makes physical memory in handles of a size, the last maybe smaller; an array that is the caller's. And
// frees handles that are mapped nowhere, with their array.
tide_status tide__handles_make(tide_device* device, uint64_t bytes, uint64_t handle_bytes,
                               tide__handle*** out, size_t* out_count);
void tide__handles_free(tide_device* device, tide__handle** handles, size_t count);
// Maps handles one behind the other; all or nothing, unless the machine refuses to undo it: then *out_stuck
// is what is left, and keeps what its caller adds to it.
tide_status tide__handles_map(tide_device* device, tide__handle* const* handles, size_t count,
                              uint64_t address, tide__stuck** out_stuck);
// A record for what may be stuck, with room for handles; among those that are tried again, or freed.
tide__stuck* tide__stuck_new(tide_device* device, size_t handles);
void tide__stuck_add(tide_device* device, tide__stuck* stuck);
void tide__stuck_free(tide_device* device, tide__stuck* stuck);
// Leaves the memory of new handles to what is stuck.
void tide__stuck_keep(tide__stuck* stuck, tide__handle** handles, size_t count);
// Gives all of it back that the machine takes; the rest is tried again. It is not the caller's any more.
void tide__stuck_end(tide_device* device, tide__stuck* stuck);
void tide__stuck_retry(tide_device* device);
// Makes room for the records of `count` more handles in a home, and adds them, from an address on.
tide_status tide__home_make_room(tide_device* device, tide__segment* segment, size_t count);
void tide__home_add_handles_locked(tide_device* device, tide__segment* segment, tide__handle** handles,
                                   size_t count, uint64_t address, bool is_mapped);
// Counts and tells memory that was made at an address of a home.
void tide__home_tell_growth(const tide__request* request, uint64_t address, uint64_t bytes);
// Are all handles under `bytes` from an idle block's beginning mapped at home, and used by no other lane?
bool tide__home_is_ready_locked(const tide__block* block, uint64_t bytes);
// Sees to that for a BUSY block; not *out_ready if others may still use it and cannot be waited for.
tide_status tide__home_prepare(tide_device* device, tide__block* block, bool can_wait, bool* out_ready);
// Notes the last use of a large block that is about to be idle.
void tide__home_block_end_locked(tide_device* device, tide__block* block);
// Looks again whether the handles under a range are mapped and not used by other lanes.
void tide__home_note_locked(tide_device* device, tide__home* home, uint64_t address, uint64_t bytes);
// Notes the last use of a range of a home by a lane.
void tide__home_add_use_locked(tide_device* device, tide__home* home, uint64_t address, uint64_t bytes,
                               tide__lane* lane, uint64_t stamp);
// The handles under a range that has memory.
tide__span tide__home_span(const tide__home* home, uint64_t address, uint64_t bytes);
// Finds out what is idle at the ends of each handle; all lanes of the pool are locked.
void tide__home_survey_locked(tide__segment* segment);
// Gives back the handles of a pool that are wholly idle, or of one kind of block only.
tide_status tide__home_trim(tide_device* device, tide__pool* pool, bool is_small,
                            const tide__call_context* moment);
void tide__home_destroy(tide_device* device, tide__segment* segment);
tide_status tide__home_add_peer(tide_device* device, const tide__segment* segment, int peer);

// --- view.c: stitched memory ---------------------------------------------------------------------------
// A block made of idle memory wherever it is: through a view that is there, or through a new one. BUSY; NULL
// if no view is there that fits.
tide_status tide__view_use(const tide__request* request, const tide__growth* growth, tide__block** out);
tide_status tide__view_make(const tide__request* request, const tide__growth* growth, tide__block** out);
// Ends the stay of a block in its view: its addresses are vacant, its pieces idle or on their way.
void tide__view_block_end_locked(tide_device* device, tide__block* block, const tide__call_context* moment);
// Gives pieces back to their homes, a list by heap_next; `lane` used them last, at their `last_use`. NULL:
// nobody did.
void tide__pieces_give(tide_device* device, tide__block* pieces, tide__lane* lane);
// The handles under a block in a view, from an offset there.
tide__span tide__view_span(const tide__view* view, uint64_t offset, uint64_t bytes);

// --- addresses.c: addresses of views ----------------------------------------------------------------
// At least so many bytes of addresses; back; and a record whose addresses somebody else has now.
tide_status tide__addresses_take(tide_device* device, uint64_t bytes, tide__addresses** out);
void tide__addresses_give(tide_device* device, tide__addresses* addresses);
void tide__addresses_forget(tide_device* device, tide__addresses* addresses);
// Gives idle ones back to the machine; and forgets them all in the end.
void tide__addresses_trim(tide_device* device);
void tide__addresses_fini(tide_device* device);

// --- view_end.c: views that go ------------------------------------------------------------------------
void tide__view_free(tide_device* device, tide__view* view);
// After a stitch for a lane that mapped so many handles: if there are too many views, those not used for
// longest go.
void tide__views_keep_few(tide_device* device, tide__lane* lane, size_t mapped);
// Takes a handle out of all views of its pool.
tide_status tide__views_drop_handle(tide_device* device, tide__handle* handle);
// Gives all views back that no block is in.
tide_status tide__views_trim(tide_device* device, tide__pool* pool);
void tide__view_destroy(tide_device* device, tide__segment* segment);
tide_status tide__view_add_peer(tide_device* device, const tide__segment* segment, int peer);

// --- marks.c: memory that goes from one stream to another ---------------------------------------------
// A stamp says when a lane used memory last. 2n + 1: at its mark n, which was taken at the release itself, so
// that others may wait for it. 2n: no later than its mark n, which may have yet to be taken; nobody waits for
// that. 0: never.
static inline bool tide__stamp_has_passed(const tide__lane* lane, uint64_t stamp) {
  return stamp / 2 <= tide__load_acquire(&lane->marks.passed);  // pairs with marks_poll_in_turn
}
// The stamp of memory that has no mark of its own.
static inline uint64_t tide__lane_next_stamp(tide__lane* lane) {
  return (tide__load_seq(&lane->marks.made) + 1) * 2;  // pairs with mark_make_in_turn
}
void tide__marks_init(tide__marks* marks);
void tide__marks_fini(tide_device* device, tide__marks* marks);
// Takes a mark on a lane's stream, which is there; its stamp, or 0. With no lock held.
uint64_t tide__mark_make(tide_device* device, tide__lane* lane);
// Looks which marks of the lanes of a pool have passed, and takes late ones where they are missing: on the
// caller's own stream, and on those that are never destroyed. The gate is the caller's. False if all have
// passed but the caller's own.
bool tide__marks_poll(tide_device* device, tide__lane* own);
// Waits until no mark is being taken on a stream that was closed.
void tide__marks_drain_closed(tide_device* device);
// Takes a late mark if memory of the lane has none; its stream is there.
void tide__marks_mark_late(tide_device* device, tide__lane* lane);
void tide__handle_note_use_locked(tide_device* device, tide__handle* handle, const tide__user* use);
// May a lane use a range of a handle now, when its stream waits for marks, or only when they have passed? The
// lane and that of the home are locked.
typedef enum tide__readiness { TIDE__READY, TIDE__READY_AFTER_WAIT, TIDE__READY_LATER } tide__readiness;
tide__readiness tide__handle_readiness(tide_device* device, const tide__handle* handle, uint64_t from,
                                       uint64_t to, const tide__lane* lane);
// Asks for the waits that a lane needs for that; lets its stream wait for all that were asked for, or forgets
// them. The gate is the caller's.
void tide__handle_want_locked(const tide__handle* handle, uint64_t from, uint64_t to, const tide__lane* lane);
tide_status tide__marks_wait(tide_device* device, tide__lane* lane);
void tide__marks_forget_wanted(tide_device* device, const tide__lane* lane);
// May the lane's own stream wait? Not in a capture.
bool tide__marks_can_wait(tide_device* device, const tide__lane* lane);

// --- reclaim.c: giving memory back -------------------------------------------------------------------
// The gate is the caller's in all of these.
tide_status tide__reclaim_pool(tide_device* device, tide__pool* pool, const tide__call_context* moment);
tide_status tide__reclaim_all(tide_device* device, const tide__call_context* moment);
// Of private pools without users.
tide_status tide__reclaim_unused(tide_device* device, const tide__call_context* moment);
tide_status tide__reclaim_available(const tide__request* request, bool* out_enough);
tide_status tide__reclaim_by_age(const tide__request* request);

// --- timeline.c: blocks that wait ---------------------------------------------------------------------
void tide__timeline_init(tide_device* device);
void tide__timeline_fini(tide_device* device);
// Gives a block that was taken back to the timeline. Never fails: what gets no event now gets it later.
void tide__timeline_add(tide_device* device, tide__block* block, const tide__moment* moment);
// Frees the blocks whose work is done; or waits for all, or for those of one pool.
tide_status tide__timeline_poll(tide_device* device, const tide__moment* moment);
tide_status tide__timeline_wait(tide_device* device, const tide__pool* pool, const tide__moment* moment);
// Waits for the oldest block of a lane's pool and stream; false when there is none.
tide_status tide__timeline_wait_one(tide_device* device, const tide__lane* lane, const tide__moment* moment,
                                    bool* out_waited);
static inline bool tide__timeline_is_empty(tide_device* device) {
  return tide__load_relaxed(&device->timeline.waiting) == 0;
}
// All deferred blocks, which are the caller's then; one back; and one that need not wait any more.
tide__block* tide__timeline_take_deferred(tide_device* device);
void tide__timeline_defer(tide_device* device, tide__block* block);
void tide__timeline_end_deferred(tide_device* device, tide__block* block, const tide__moment* moment);

// --- capture.c ---------------------------------------------------------------------------------------
// The number of the capture that a stream of the device is in; 0: none.
uint64_t tide__stream_capture(tide_device* device, tide_stream stream);
// Is a stream of any device in a capture, be it invalid? If the machine does not tell, it counts as captured;
// one that is gone does not.
tide_status tide__capture_ask(tide_device* device, int index, tide_stream stream, bool* out);
bool tide__stream_is_captured(tide_device* device, int index, tide_stream stream);
// Notes where the streams of a block stand that is released in a capture, and forgets it.
void tide__markers_make(tide_device* device, tide__block* block);
void tide__markers_free(tide_device* device, tide__block* block);
// Frees the waiting blocks of the request's stream that the graph proves to be free.
tide_status tide__capture_reuse(tide__request* request);

// --- pool.c ------------------------------------------------------------------------------------------
void tide__pool_init(tide__pool* pool, tide_pool number);
void tide__pool_fini(tide_device* device, tide__pool* pool);
tide__pool* tide__pool_find_locked(tide_device* device, tide_pool number);
// The same without the lock: what is found stays as long as the caller has the gate.
tide__pool* tide__pool_find(tide_device* device, tide_pool number);
// Sets the pool of a request if a scope that is open takes it. The request is then a guest there.
void tide__pool_choose(tide__request* request);
// Where a walk over the private pools has come to; all 0 at the beginning.
typedef struct tide__pool_cursor {
  bool is_begun;
  uint64_t key;
  uint64_t tie;
} tide__pool_cursor;
// The next private pool of a walk; NULL at the end.
tide__pool* tide__pool_next(tide_device* device, tide__pool_cursor* at);
// Ends the stay of a request in the pool that was chosen for it.
void tide__pool_leave(tide_device* device, tide__pool* pool);
bool tide__pool_is_used(tide_device* device, const tide__pool* pool);
// Forgets private pools that have neither users nor memory.
void tide__pool_drop_unused(tide_device* device);

// --- stats.c -----------------------------------------------------------------------------------------
void tide__totals_add(tide_device* device, tide__tally* tally);
void tide__totals_settle(tide_device* device);
// A block was taken back and waits; its wait is over. The lane's tally is added already.
void tide__totals_wait_begin(tide_device* device, const tide__block* block);
void tide__totals_wait_end(tide_device* device, const tide__block* block);
// The highest that was handed out at once is what is there now, for the policy `tide`.
void tide__totals_forget_peak(tide_device* device);
void tide__totals_count(tide_device* device, size_t field_offset);
#define TIDE__COUNT(device, field) tide__totals_count((device), offsetof(tide_device_stats, field))
void tide__totals_oversize(tide_device* device, bool is_rise);

// --- history.c ---------------------------------------------------------------------------------------
static inline bool tide__is_recording(tide_device* device) {
  return (tide__load_relaxed(&device->detours) & (TIDE__RECORDS_HISTORY | TIDE__RECORDS_TRACE)) != 0;
}
// The context of a call, with the stack if the history's level is at least `level` (0: no stack); before any
// lock.
tide__call_context tide__context_now(tide_device* device, uint32_t level);
// Adds an entry about memory of a lane, or of none; see tide__history_add().
void tide__entry_add(tide_device* device, tide_action action, const tide__call_context* context,
                     uint32_t stack, const tide__lane* lane, uint64_t address, uint64_t bytes);

// --- to_trace.c --------------------------------------------------------------------------------------
// Keeps the label of a pool that goes, for entries that name it; with no lock held. And forgets all.
void tide__labels_keep(tide_device* device, const tide__pool* pool);
void tide__labels_forget(tide_device* device);

// --- observer.c --------------------------------------------------------------------------------------
// Runs the callbacks that release memory; true if one says that it did.
bool tide__observers_reclaim(tide_device* device);
void tide__observers_oom(tide_device* device, const tide_oom* oom);

// --- share.c -----------------------------------------------------------------------------------------
void tide__imports_close(tide_device* device);

// --- offer.c -----------------------------------------------------------------------------------------
void tide__offers_close(tide_device* device);

// --- oom.c -------------------------------------------------------------------------------------------
// Forgets the steps of the thread's last request that was hard to serve.
void tide__oom_begin(void);
// Takes one step and notes what it yielded.
typedef tide_status (*tide__rung_fn)(tide__request* request, tide__block** out);
tide_status tide__oom_try(const char* name, tide__rung_fn rung, tide__request* request, tide__block** out);
// Reports that a request failed for want of memory, tells observers, and returns TIDE_ERR_NO_MEMORY.
tide_status tide__oom_report(const tide__request* request);
// Writes the text of a report from its numbers, in the words of PyTorch on the machine "cuda".
void tide__oom_write(tide_oom* oom, const char* machine);

#endif
