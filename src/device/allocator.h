// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The structures of the device allocator. The functions on them are declared by its rooms: lane, stream,
// segment, park, policy, torch, tide, share. docs/architecture.md says which room may use which.
//
//   tide_device_cache        one allocator: pools, the map of addresses, waiting blocks, statistics, history
//     pool             the default one and private ones; memory never moves from one to another
//       lane           the memory of one stream in a pool, with its lock
//         free index   the idle blocks of a lane, small or large ones
//         segment      memory from the machine, cut into a chain of blocks
//     tcache           the thread cache of each thread (policy `tide`): small blocks, and what it counted
//
// Locks are ranked in base/lock.h. The gate is not a lock but a turn: a thread takes it to grow or shrink the
// allocator, and calls the machine while it has it. Requests that find cached memory, releases and records
// never wait for it.
#ifndef TIDEMARK_SRC_DEVICE_ALLOCATOR_H
#define TIDEMARK_SRC_DEVICE_ALLOCATOR_H

#include "base/arith.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/hash_map.h"
#include "base/list.h"
#include "core/bins.h"
#include "core/capture.h"
#include "core/thread_cache.h"
#include "core/history.h"
#include "core/magazine.h"
#include "core/map.h"
#include "core/pools.h"
#include "core/tally.h"
#include "monitor/monitored.h"
#include "tidemark/budget.h"
#include "tidemark/device.h"

#define TIDE__REASON_TEXT 512
#define TIDE__SMALL_BYTES ((uint64_t)1 << 20)          // the largest small request, rounded
#define TIDE__SMALL_SEGMENT_BYTES ((uint64_t)2 << 20)  // a segment of small blocks
#define TIDE__OWN_SEGMENT_BYTES ((uint64_t)10 << 20)   // from this size on, a request gets its own segment,
#define TIDE__SEGMENT_STEP ((uint64_t)2 << 20)         // whose size is a multiple of this
#define TIDE__MAX_REQUEST ((uint64_t)1 << 60)
// How much a lane or a thread counts at most before it adds its tally to the totals: changes, and bytes of
// large blocks of the policy `tide`.
#define TIDE__TALLY_CHANGES 1024
#define TIDE__TALLY_BYTES_KEPT ((int64_t)4 << 20)

struct tide__lane;
struct tide__pool;

// A stream that uses a block of another stream.
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

// Physical memory of the policy `tide`. It has a place in its home, where it is mapped at once or later, when
// needed. It may also be mapped in any number of views; making a view unmaps nothing.
typedef struct tide__handle {
  // The first cache line: what surveys of idle memory, and most searches of views, touch.
  uint64_t address;  // at home
  uint64_t bytes;
  // What is idle, whoever may use it. A survey brings it up to date, with the gate and the lane's lock.
  uint64_t idle_prefix;
  uint64_t idle_suffix;
  uint64_t idle_inner;
  tide__block* prefix_hole;  // the idle block at its beginning; NULL: none
  tide__block* suffix_hole;  // the one at its end
  tide__block* inner_hole;   // the largest one that touches neither
  // The second: what the request of the survey with this number may use: see tide__survey.
  struct tide__segment* home;
  uint64_t survey;
  uint64_t prefix;    // idle bytes at its beginning
  uint64_t suffix;    // idle bytes at its end
  bool prefix_waits;  // using the idle bytes at its beginning requires a wait for other streams
  bool suffix_waits;  // the same for its end
  bool is_shared;     // another process may use it: not lent until it is wholly idle; with the gate
  bool is_mapped;     // at home; changes with the gate and the lock of the home's lane
  bool is_odd;        // not mapped at home, or other lanes may still use it; under that lock, like
  uint64_t crowd;     // number of the crowd it was in last; 0: none: see marks.c
  struct tide__view_place* places;  // in views; with the gate
  struct tide__handle* next_idle;
  tide_physical physical;  // owned
  tide__user users[TIDE__HANDLE_USERS];
} tide__handle;

// A survey of the idle memory that a request may use. It holds as long as no idle block comes or goes. It
// looks at the blocks that have changed since the last one. What of a handle the request may use is found out
// when it is asked for.
typedef struct tide__survey {
  uint64_t number;
  uint64_t look;        // for which it was made; 0: for no other
  uint64_t changes;     // of idle blocks, until then
  bool is_listed;       // the handles with memory that it may use are in this list:
  tide__handle* first;  // homes by age, in each by address; by next_idle
  size_t count;
} tide__survey;

// How fast the peak of large blocks grows: see tide/pace.h.
typedef struct tide__pace {
  uint64_t served;  // large requests when the present window of requests began
  uint64_t peak;    // of large blocks then
  uint64_t last;    // by how much it grew in the window before
  uint64_t steady;  // how much of that counts as steady growth
} tide__pace;

// The handles under a range of addresses. The range begins `offset` bytes into the first one.
typedef struct tide__span {
  tide__handle* const* handles;  // borrowed as long as the caller has the gate
  size_t count;
  uint64_t offset;
} tide__span;

// Records for blocks to come.
typedef struct tide__spares {
  tide__block* first;  // by heap_next
  size_t count;
} tide__spares;

// What is known about large blocks of one size, or of some that share a place: see tide/lasting.h.
typedef struct tide__size {
  uint64_t bytes;     // handed out now
  uint32_t first;     // the number of the block since which some always were
  bool was_released;  // one of them ever
} tide__size;

enum { TIDE__SIZES_BITS = 10 };
typedef struct tide__sizes {
  uint32_t count;  // blocks that were ever handed out
  tide__size places[1 << TIDE__SIZES_BITS];
} tide__sizes;

enum { TIDE__NOTED_MOST = 64 };

// The part of a segment that is a home of handles: addresses for more memory than the device has, filled from
// the low end. The last block of its chain is UNMAPPED; new memory is mapped at its beginning.
typedef struct tide__home {
  tide__link link;  // among the homes of large blocks of the allocator, by age; with the gate
  struct tide__segment* segment;
  tide__block* top;        // the last block; NULL when the addresses are used up
  tide__handle** handles;  // owned, by address; they change with the gate and the lane's lock
  uint64_t* ends;  // owned; where each of them ends, for a search that touches little memory; likewise
  size_t count;
  size_t capacity;
  uint64_t* idle_bits;  // owned; which of them had idle memory at an end, at the last survey; with the gate
  size_t idle_capacity;
  uint32_t odd_count;  // of its handles; under the lane's lock, like
  tide__sizes* sizes;  // owned; NULL: of small blocks, or of an external stream
  // Blocks that became idle, or are idle no more, since the last survey. Under the lane's lock.
  bool is_noting;  // since a survey; until there were too many, so that the next one looks at all blocks
  uint16_t noted_count;
  tide__block* noted[TIDE__NOTED_MOST];
} tide__home;

// A range of addresses that is reserved for views; key: its bytes, tie: where it begins.
typedef struct tide__addresses {
  tide__tree_node node;  // among the idle ones
} tide__addresses;

// One of the places of a handle in views.
typedef struct tide__view_place {
  struct tide__view* view;
  struct tide__view_place* next;
  struct tide__view_place** link;  // what points to it
  struct tide__view_list* list;    // that the view is in; NULL: in none
  size_t entry;                    // its place there
} tide__view_place;

// The part of a segment that is a view: handles mapped one after another, in any order.
typedef struct tide__view {
  tide__addresses* addresses;  // owned
  tide__handle** handles;      // owned; NULL where one was given back
  uint64_t* offsets;           // owned
  tide__view_place* places;    // owned; of each handle
  size_t entry;  // its place in the list of its lane; SIZE_MAX: none; repeated in `places`; with the gate
  size_t count;
  const tide__handle* middle;  // the handle in the middle of its bytes; only if it is not broken
  uint32_t live;               // blocks in it; under the lane's lock
  bool is_broken;              // a handle is missing, or the view is retired: it serves no more requests
  bool is_retired;             // it is unmapped when its last use has passed; with the gate
  struct tide__segment* segment;
  tide__link order;   // among the views of the device, or the retired ones of its lane; with the gate
  uint64_t last_use;  // stamp of the last release of a block in it; under the lane's lock
  uint64_t turns;     // entries about segments when that was reported to observers; likewise
} tide__view;

// The views of a lane that serve requests, in the order they were made: see tide/view_list.h. With the gate.
typedef struct tide__view_entry {
  uint64_t bytes;
  tide__view* view;  // NULL: the entry is empty
} tide__view_entry;
typedef struct tide__view_list {
  tide__view_entry* entries;  // owned
  // Owned; of each entry, in units of TIDE__GRAIN: no run of idle memory in the view is longer, as far as
  // surveys know. It may be more than the view has. 0: the entry is empty. Apart from the entries, because a
  // search reads all of them.
  int32_t* bounds;
  size_t count;
  size_t entry_capacity;
  size_t bound_capacity;
} tide__view_list;

struct tide__mapping;

// Raw memory that could not be used and that the machine refused to take back. Releasing it is tried again
// later. The record is made before the memory is requested.
typedef struct tide__stray {
  struct tide__stray* next;
  void* address;
} tide__stray;

struct tide__call_context;

// The functions of a kind of segment: raw, expandable, home, view or range. Lower layers call them only
// through this table. A function may be NULL if there is nothing to do.
typedef struct tide__segment_kind {
  // Makes a block idle that is no longer in use. NULL: it is merged with its neighbours in its free index.
  void (*block_rest_locked)(tide_device_cache* device, tide__block* block,
                            const struct tide__call_context* context);
  // Notes that a lane used a lent piece of the segment until the piece's `last_use`.
  void (*piece_used_locked)(tide_device_cache* device, tide__block* piece, struct tide__lane* user);
  // Gives back memory of an idle block that the caller made BUSY, the whole segment or whole handles, until
  // at most `target` bytes are reserved. What is left of the block is idle again, also on failure. The caller
  // has the gate.
  tide_status (*give_idle)(tide_device_cache* device, tide__block* block, uint64_t target,
                           const struct tide__call_context* context);
  // Frees what belongs to a segment whose addresses were given back.
  void (*forget)(tide_device_cache* device, struct tide__segment* segment);
  // Gives a peer access to everything that is mapped.
  tide_status (*add_peer)(tide_device_cache* device, const struct tide__segment* segment, int peer);
  // Gives the memory back at the end of the allocator, even if it is in use.
  void (*destroy)(tide_device_cache* device, struct tide__segment* segment);
} tide__segment_kind;

// Memory from the machine.
// [S1] the chain from `head` has no gap; its bytes add up to `bytes`
typedef struct tide__segment {
  tide__link link;  // in the lane
  const tide__segment_kind* kind;
  struct tide__lane* lane;  // borrowed
  tide__block* head;        // shared under the lane's lock
  uint64_t address;
  uint64_t bytes;
  // At most one of view, home and range is set, and is_expandable with it; owned.
  tide__view* view;
  uint64_t ordinal;
  uint64_t tie_origin;  // subtracted from addresses to get ties: 0, or such that older segments come first
  uint32_t stack;
  bool is_small;
  bool is_expandable;
  bool is_tied_by_age;
  // Of an expandable one; touched by the thread that has the gate.
  uint64_t handle_bytes;
  size_t handle_capacity;
  tide_physical* handles;  // owned; NULL where nothing is mapped
  tide__home* home;
  struct tide_range* range;
} tide__segment;

// The idle blocks of one lane.
typedef struct tide__free_index {
  tide__bins bins;
  tide__tree unmapped;  // blocks without memory, by address
} tide__free_index;

enum { TIDE__LARGE = 0, TIDE__SMALL = 1 };

// The marks of a lane: see marks.c. [M1] events of the marks above `passed` up to `made` are recorded, in the
// order of their numbers [M2] made - passed <= capacity
typedef struct tide__marks {
  tide__mutex lock;         // guards is_taken
  tide__signal left;        // nobody has the turn
  bool is_taken;            // a thread has the turn, and may change what follows
  tide_event* events;       // owned; that of mark n at n modulo capacity
  uint32_t capacity;        // 0 or a power of two
  tide__atomic_u64 made;    // the number of the last one
  tide__atomic_u64 passed;  // all marks up to this number have passed
} tide__marks;

// The memory of one stream in one pool.
typedef struct tide__lane {
  tide__mutex lock;         // guards the free indexes, the segments and all their blocks
  struct tide__pool* pool;  // borrowed
  tide_stream stream;
  _Atomic(tide_stream) key;  // by which it is found: the stream; for a closed stream, its own address
  tide__free_index free_index[2];
  tide__link segments;
  tide__block* spares;  // records for blocks to come
  tide__use* spare_uses;
  tide__tally tally;
  uint32_t number;          // lanes of a pool are numbered in the order in which they are made
  tide__segment* homes[2];  // the newest of each kind, or NULL; they change with the gate and the lock
  size_t view_count;        // with the gate, like
  tide__view_list views;    // those that serve requests
  tide__link retired;       // views, in the order they were made
  bool is_held;             // locked together with other lanes by the thread that has the gate; likewise
  uint64_t wanted;          // the mark of this lane that another lane is about to wait for; likewise
  tide__marks marks;
  tide__atomic_u32 makes_marks;  // large blocks get a mark when they are released
  tide__atomic_u32 is_closed;    // the stream is gone: it is not called, and no request finds the lane
  tide__atomic_u64 crowd_stamp;  // of its last use of a handle that had no room to note it: see marks.c
  uint64_t unmarked;             // stamp of its last release without a mark of its own; under the lock, like
  uint64_t unnoted;              // the same of one that handles did not note
  uint32_t notes_left;           // how many more of these releases handles note: see tide/recast.c
  uint64_t* waited;  // owned; by the number of another lane, its last mark that this one waits for
  uint32_t waited_count;
  tide__block* leaving;          // pieces of other lanes whose block was released here, by heap_next
  uint64_t puts;                 // how often a block became idle; under the lock
  uint64_t takes;                // how often an idle block was taken; likewise
  uint64_t pin_steps;            // blocks that reports of refusals looked at; likewise
  uint64_t walk_puts[2];         // `puts` when the last walk for idle memory of a kind began; with the gate
  uint64_t barren_puts[2];       // the same + 1 for the last walk that gave back all it could; likewise
  struct tide__lane* next;       // in the pool, by rising stream; shared under the pools lock
  struct tide__lane* next_idle;  // among the lanes of pools that are gone
  tide__atomic_u32 is_external;  // the stream may be gone: it is called only by a request on it
  bool is_unlisted;              // external, and in the default pool: not in the table; see external.c
  uint64_t stream_number;        // of such a stream; 0: unknown; under the pools lock, like
  uint32_t guests;               // requests on the stream that are being served
  uint64_t arrival_number;       // of the last arrival that its stream waits for; with the gate
} tide__lane;

enum { TIDE__MAGAZINES = 64, TIDE__LANE_CACHES = 8 };
#define TIDE__MAGAZINE_BYTES \
  ((uint64_t)512 << 10)  // of the last class, and the largest request of a magazine

// Small blocks of one lane in a thread cache, by size class. [K1] bit n of `filled` is set iff
// magazine n is not empty [K2] a block is in the last magazine whose class it can serve
typedef struct tide__lane_cache {
  _Atomic(tide__lane*) lane;  // of the default pool; NULL: not in use; other threads only compare it
  tide_stream stream;
  uint64_t filled;
  tide__magazine magazines[TIDE__MAGAZINES];  // of blocks, by heap_next
} tide__lane_cache;

// The thread cache of a thread.
typedef struct tide__tcache {
  tide__thread_cache base;
  tide__lane_cache* newest;  // one of them, borrowed
  tide__tally tally;
  tide__lane_cache lanes[TIDE__LANE_CACHES];
} tide__tcache;

// The table that finds a lane by its stream.
typedef struct tide__lane_table {
  struct tide__lane_table* older;  // replaced tables; readers may still use them
  uint32_t mask;
  _Atomic(tide__lane*) places[];
} tide__lane_table;

// A tag, with its budget and uses. Tags are made together with those above them, and live as long as the
// allocator. All but the first three fields change with the gate.
typedef struct tide__use_order tide__use_order;
typedef struct tide__tag {
  struct tide__tag* next;    // the tag that was made before it: a tag comes before those above it
  struct tide__tag* parent;  // NULL: none
  const char* text;          // of the allocator's names
  bool has_budget;
  tide_budget budget;  // that of TIDE_BUDGET_INIT without one
  uint32_t uses;       // that are not done
  uint64_t used_at;    // number of the last use, or end of one; 0: none
  tide_event done;     // owned; behind the work of the last use; NULL: none
  tide_stream done_stream;
  bool is_done_unknown;  // work of uses may be under way that the event is not behind
  bool is_away;          // a pool of it, or below it, is parked and may come ahead: see tide_device_use()
  uint64_t steps_ahead;  // uses until it is expected; UINT64_MAX: unknown; see tide__uses_expect()
  // Found by tide__stays_begin() and the functions after it.
  size_t round_place;    // the first one in the round
  uint64_t round_bytes;  // of pools that come and go with the tag
  bool stays;
  // What the tag itself adds to tide_budget_stats.
  uint64_t parked_count;
  uint64_t fetched_count;
  uint64_t ahead_count;
  uint64_t sent_bytes;
  uint64_t fetched_bytes;
  uint64_t idle_bytes;
  tide__atomic_u64 refused_count;
  // Reserved in pools of the tag and those below it; shared under the totals lock.
  uint64_t held;
  uint64_t held_most;
  // Found by tide__budgets_measure().
  uint64_t own;       // reserved in pools with exactly this tag
  uint64_t added;     // that is to come there
  uint64_t reserved;  // both, with the tags below
  uint64_t basis;     // the same, with guarantees below it that are not used
  uint64_t basis_before;
  bool is_asking;  // memory is to come to it or below it
} tide__tag;

typedef struct tide__pool {
  tide__pool_base base;
  bool is_raw;  // it never has virtual memory: it is plain, or has functions of its own
  tide__atomic_u32 no_split;
  tide__atomic_u32 use_on_oom;
  tide__atomic_u32 backup;       // a tide_backup
  tide__atomic_u64 searches[2];  // of each kind: the clock of collection
  tide__atomic_u64 reserved_bytes;
  tide_pool_options options;
  _Atomic(tide__lane_table*) table;  // owned
  tide__lane* lanes;                 // by rising stream; shared under the pools lock
  uint32_t lane_count;               // likewise
  uint32_t table_count;              // of these, lanes that the table finds; likewise
  _Atomic(const char*) tag;          // of the allocator's names; "": none; written under the pools lock
  _Atomic(tide__tag*) tag_record;    // the same; NULL: none; written with the gate
  tide__atomic_u32 is_captured;      // a capture used it: graphs may use memory that is idle in it
  // Where its memory is, written with the gate; see tide/parking.c.
  struct tide__parked* parked;   // owned; NULL: not parked
  tide__atomic_u32 is_parked;    // the same, for readers without the gate
  bool is_moving;                // a thread that has paused at the gate is parking it
  uint64_t arrival_number;       // of the arrival that brought its contents back; likewise
  tide__atomic_u32 is_tracked;   // a use has brought it back: since then all work with it is work of uses
  tide__atomic_u32 is_arriving;  // its contents may be on their way, and not all streams wait for them
  uint64_t floor_bytes;          // giving back its idle memory leaves so much reserved; with the gate, like
  uint64_t give_turn;            // of the last walk for memory that gives way that has seen it
} tide__pool;

// The label of a pool that is gone.
typedef struct tide__gone_label {
  struct tide__gone_label* next;
  tide_pool_label label;
  tide_pool number;
} tide__gone_label;

// The options in force. Settings never change once they are published.
typedef struct tide__settings {
  tide_device_options options;
  bool is_fallen;                  // the policy is not the one that was asked for
  char reason[TIDE__REASON_TEXT];  // why the options are not those that were asked for; "": they are
  struct tide__settings* older;
} tide__settings;

// Bits of tide_device_cache.detours.
enum {
  TIDE__RECORDS_HISTORY = 1,
  TIDE__RECORDS_TRACE = 2,
  TIDE__RECORDS = TIDE__RECORDS_HISTORY | TIDE__RECORDS_TRACE,
  TIDE__HAS_SCOPES = 4,
  TIDE__IS_UNCACHED = 8,
  TIDE__IS_AUDITED = 16,
  TIDE__HAS_NO_TCACHES = 32,
  TIDE__IS_INHERITED = 64,   // this process is a child of the one that made the allocator
  TIDE__HAS_CAPTURES = 128,  // scopes are open that are not regions
  TIDE__HAS_ARRIVAL = 256    // contents of parked memory are on their way back: see park/arrivals.c
};

// Memory of another process that is open here.
typedef struct tide__import {
  struct tide__import* next;
  tide_share share;
  uint64_t base;
  uint64_t bytes;               // of the reservation, or of a raw one, as the machine says
  struct tide__mapping* parts;  // owned; ended with the import; NULL for a raw one
  uint32_t uses;
} tide__import;

struct tide_device_cache {
  tide_machine* machine;  // borrowed until the allocator is freed; NULL at its end if waiting for work failed
  int index;
  const tide_heap* heap;  // borrowed until the allocator is freed
  uint32_t id;            // a number below 64 that no other living allocator has, if has_own_id
  bool has_own_id;
  uint64_t uid;          // a number that no other allocator ever has
  uint64_t total_bytes;  // of the device
  uint64_t granularity;
  tide__atomic_u32 physical_flags;    // that work; the options may forbid some: see tide__physical_flags
  bool waits_on_release;              // the machine itself waits for work before it releases raw memory
  const struct tide__policy* policy;  // with which it was made
  // The policy in force: the same, or the policy torch if the first use of virtual memory failed.
  _Atomic(const struct tide__policy*) policy_now;
  const struct tide__policy* plain_policy;  // the policy torch: see tide__policy_of
  tide__atomic_u32 has_mapped;              // virtual memory was mapped for a request
  _Atomic(tide__settings*) settings;
  tide__atomic_u64 limit;
  tide__atomic_u64 reserved_bytes;
  tide__atomic_u32 lane_drops;  // how often lanes were taken from a pool
  bool has_tcaches;             // threads have thread caches, and count in them
  tide__atomic_u32 detours;     // bits: what keeps calls from the fast path
  tide__fork_note fork_note;
  tide__thread_caches tcaches;  // with has_tcaches
  tide__atomic_u64 next_ordinal;
  tide__slots blocks;
  tide__map map;
  tide__stream_waits waits;  // blocks that were released while other streams use them
  tide__history history;

  tide__mutex gate_lock;  // guards the gate
  tide__signal gate_open;
  bool is_gate_taken;
  uint32_t gate_waiters;       // threads that wait for it, but for those that let others go first
  tide__atomic_u32 paused;     // threads that left the gate for observers: see tide__gate_pause
  tide__atomic_u64 gate_turn;  // how many turns there were
  // Touched by the thread that has the gate.
  tide_physical* orphans;  // owned; handles that the machine refused to take back; tried again later
  size_t orphan_count;
  size_t orphan_capacity;
  struct tide__stocked* stock;  // owned; see tide__stock_open
  size_t stock_count;
  size_t stock_capacity;
  uint32_t stock_users;  // calls that keep it open
  uint32_t peers[TIDE_DEVICE_MAX];
  uint32_t peer_count;
  tide__import* imports;         // owned
  struct tide__offers* offers;   // owned; NULL before the first
  tide__hash_map kept;           // open descriptors of handles, + 1, by handle: tide_device_share_kept()
  tide__link homes;              // of the policy `tide`, for large blocks, by age
  tide__survey survey;           // the last one
  tide__spares spares;           // not held by a gathering now: see tide/pieces.h
  uint64_t looks;                // for which surveys were made so far
  tide__pace pace;               // of the peak of large blocks
  tide__link views;              // without retired ones; those that were not used for longest come first
  uint64_t view_bytes;           // of addresses
  size_t view_count;             // both without retired ones
  size_t retired_count;          // of views
  tide__atomic_u32 most_pieces;  // of a block so far
  tide__tree idle_addresses;     // owned; of views that are gone
  uint64_t stitch_clock_ns;      // when the time was read last
  double stitch_ns_left;         // how much time making views may take from then on
  double hurry_ns_left;          // and how much while that takes more than its share
  bool is_hurried;               // making views took more than its share: see tide/hurry.c
  struct tide__mapping* stuck;   // owned; mappings that the machine refused to undo; tried again later
  tide__lane* range_lane;        // of ranges under the policy torch; NULL before the first
  uint64_t flushed_at;           // served[TIDE__SMALL] when all magazines were flushed last
  bool lacks_record_all;         // the machine has no event_record_all
  tide__atomic_u64 crowds;       // the number of crowds so far: see marks.c
  tide__atomic_u64 crowds_over;  // the work of all crowds up to this number has passed
  // Owned; what parking needs of the machine; NULL before its first use.
  struct tide__carrier* carrier;
  struct tide__backup* backups;      // owned; in use or kept: see park/backups.c
  tide_event arrival;                // of the carrier: contents are there when it has passed; NULL: they are
  uint64_t arrival_number;           // of the last one
  uint64_t arrival_all;              // of the last one that all streams wait for
  uint64_t arrival_over;             // all up to this one are over
  struct tide__store* stuck_stores;  // owned; backups that the machine refused to unlock; tried again later
  uint64_t unsettled_bytes;          // new from the machine, not reserved yet: see lane/allowance.c
  uint32_t budget_count;             // of tags that have one
  uint64_t give_turns;               // walks for memory that gives way so far
  uint64_t use_clock;                // uses, and ends of uses, so far
  tide__use_order* order;            // owned; of uses: see budget/uses.c; NULL: none yet

  _Atomic(tide_quota*) quota;      // owned; of the ledger that the cache has joined; NULL: none
  bool is_leaving;                 // the memory is about to go: others get nothing any more; with the gate
  tide__atomic_u64 memberships;    // how often the cache has joined or left; both change with the gate
  uint32_t quota_users;            // calls that use it without the gate; under the gate's lock, like
  bool is_membership_changing;     // a thread is joining or leaving
  tide__atomic_u64 quota_wait_ns;  // that a request waits for other processes at most
  tide__atomic_u64 granted_bytes;  // that the quota has taken from the ledger
  tide__atomic_u64 pledged_bytes;  // of these, for requests that have asked other processes
  _Atomic(tide__tag*) tags;        // owned; the newest first; written under the pools lock

  tide__mutex pools_lock;  // guards all below
  tide__pool default_pool;
  tide__pools pools;
  tide__hash_map externals;  // lanes of the default pool by their external stream; changed with the gate
  tide__lane* idle_lanes;
  tide__stray* strays;            // owned
  tide__gone_label* gone_labels;  // owned; the oldest first
  tide__gone_label* gone_last;
  size_t gone_count;

  tide__mutex totals_lock;  // guards the statistics
  tide_device_stats totals;
  tide_device_stats totals_at_reset;  // when the sums were last set to 0
  uint64_t peak_large;                // the peak of active_bytes of large blocks; only a trim resets it
  uint64_t served[2];                 // TIDE__LARGE and TIDE__SMALL requests so far

  tide__monitored monitored;
};

// A request while it is being served.
typedef struct tide__request {
  tide_device_cache* device;
  const tide_device_options* options;  // borrowed; they live as long as the allocator
  const struct tide__policy* policy;
  tide__lane* lane;
  tide__pool* pool;
  tide_stream stream;
  uint64_t bytes;  // as requested
  uint64_t rounded;
  uint64_t segment_bytes;  // of a segment that would be made for it
  tide__call_context context;
  uint64_t gate_turn;  // when the request was made
  int kind;            // TIDE__SMALL or TIDE__LARGE
  bool has_captures;   // scopes that act as captures were open when the request was made
  bool is_capturing;
  bool is_rejected;     // it failed because of the option rejects_early
  bool is_borrowing;    // of the default pool, served from a pool with use_on_oom
  tide__pool* visited;  // a private pool that this request is a guest of
} tide__request;

// budget.c: adds all tags, with what they may have and have, to a snapshot.
tide_status tide__tags_to_trace(tide_device_cache* device, tide_trace* trace);

// monitor_row.c: a tide__monitored_fill.
bool tide__device_row_fill(void* cache, tide_monitor_row* row);

#endif
