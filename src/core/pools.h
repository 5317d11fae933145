// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The pools of an allocator, and the scopes that send requests to them.
//
// A private pool is made with one user; users are added and removed. A scope is open on a pool from begin to
// end and accepts the requests of a thread, of a stream, of a capture, or those that a filter accepts. A
// request goes to the newest open scope that accepts it, and is a guest of the pool until it is over. A pool
// without users and guests can be dropped once it has no memory. Records of pools are reused, and freed only
// with the allocator, so that a stale pointer is never dangling.
//
// Each allocator embeds tide__pool_base as the first field of its own record of a pool. It also provides the
// lock, with which it guards data of its own as well. Functions named `locked` are called with that lock
// held, all others without it. Filters, and the machine, are called with no lock held.
#ifndef TIDEMARK_SRC_CORE_POOLS_H
#define TIDEMARK_SRC_CORE_POOLS_H

#include "base/heap.h"
#include "base/list.h"
#include "base/tree.h"
#include "core/askers.h"
#include "tidemark/machine.h"
#include "tidemark/memory.h"

enum { TIDE__MAX_SCOPES = 64 };

// What every pool has; shared under the lock, except for what never changes while the pool is registered.
typedef struct tide__pool_base {
  tide__tree_node node;  // key: its place in the order of walks; tie: its number
  tide_pool number;      // 0: the default pool; never changes, like
  uint64_t label[2];     // { 0, 0 }: none
  uint32_t users;
  uint32_t guests;  // requests in progress, and walks that stopped here
  bool has_scope;
  struct tide__pool_base* next_idle;  // among the records of dropped pools
} tide__pool_base;

// Which requests a scope accepts.
typedef struct tide__scope {
  uint32_t kind;       // a tide_scope_kind
  uint32_t flags;      // the allocator's own
  bool is_region;      // the allocator does not behave as inside a capture while it is open
  int device;          // of the stream
  tide_stream stream;  // for the kinds STREAM and CAPTURE
  // For the kind FILTER: calls `filter`, which has the type that the allocator's interface gives it.
  bool (*ask)(const struct tide__scope* scope, int device, tide_stream stream);
  void (*filter)(void);
  void* user;  // borrowed until the scope is closed
} tide__scope;

typedef struct tide__open_scope {
  tide__pool_base* pool;
  uint64_t number;  // unique among scopes
  uint64_t thread;  // that opened it
  tide__scope scope;
} tide__open_scope;

// [P1] pool->has_scope iff one of scopes[0 .. scope_count - 1] names the pool; the newest is the last
// [P2] pool->has_scope implies pool->users > 0
typedef struct tide__pools {
  tide__mutex* lock;  // borrowed; guards all that follows
  const tide_heap* heap;
  size_t record_bytes;
  // These five are set by the allocator after tide__pools_init(), or stay NULL and 0.
  void (*record_init)(void* record);               // initialises a new record, whose memory is all 0
  uint64_t (*place)(const tide__pool_base* pool);  // its key in walks; NULL: its number
  tide__atomic_u32* flags;
  uint32_t has_scopes;    // a bit of `flags` that is set while scopes are open
  uint32_t has_captures;  // the same for scopes that are not regions

  tide__pool_base* default_pool;  // the allocator's
  tide__tree tree;                // private pools; their records are owned
  tide__pool_base* idle;          // owned
  tide_pool last_number;
  tide__open_scope scopes[TIDE__MAX_SCOPES];
  uint32_t scope_count;
  uint64_t scopes_opened;  // so far
  tide__askers askers;     // of filters
} tide__pools;

void tide__pools_init(tide__pools* pools, tide__mutex* lock, const tide_heap* heap, size_t record_bytes);
// Frees the records of dropped pools. Private pools must be gone: tide__pools_free().
void tide__pools_fini(tide__pools* pools);
// Makes a record the default pool, which always has one user.
void tide__pools_set_default(tide__pools* pools, tide__pool_base* pool);

// ---------------------------------------------------------------------------------------------------
// Finding pools

// The pool with a number; NULL if there is none. A pool that is found without the lock may be dropped
// meanwhile.
tide__pool_base* tide__pools_find_locked(const tide__pools* pools, tide_pool number);
tide__pool_base* tide__pools_find(tide__pools* pools, tide_pool number);
// The newest pool with a label, with users or without; its number, or 0.
tide_pool tide__pools_find_label(tide__pools* pools, const uint64_t label[2]);
// Finds a private pool and returns with the lock held; on failure the lock is not held. `needs_users`: a pool
// without users is refused. `call` names the caller in the error.
tide_status tide__pools_lock(tide__pools* pools, tide_pool number, bool needs_users, const char* call,
                             tide__pool_base** out);

// Walks over the private pools: in order of their places, and by number where these are equal.
static inline tide__pool_base* tide__pools_first_locked(const tide__pools* pools) {
  tide__tree_node* const node = tide__tree_first(&pools->tree);
  return node != NULL ? TIDE_OWNER(node, tide__pool_base, node) : NULL;
}
static inline tide__pool_base* tide__pools_after_locked(const tide__pool_base* pool) {
  tide__tree_node* const node = tide__tree_next(&pool->node);
  return node != NULL ? TIDE_OWNER(node, tide__pool_base, node) : NULL;
}
// The position of a walk that does not hold the lock between its steps; all 0 at the beginning. Pools that
// are added or dropped meanwhile may be visited or not.
typedef struct tide__pool_cursor {
  bool is_begun;
  uint64_t key;
  uint64_t tie;
} tide__pool_cursor;
// The next pool of a walk; NULL at the end.
tide__pool_base* tide__pools_next(tide__pools* pools, tide__pool_cursor* at);
// The next pool without users; the caller is its guest until tide__pools_leave() or tide__pools_remove().
tide__pool_base* tide__pools_next_unused(tide__pools* pools, tide__pool_cursor* at);

// ---------------------------------------------------------------------------------------------------
// The life of a pool

// A record for a new pool, reused or new; NULL if there is no memory.
tide__pool_base* tide__pools_take_record(tide__pools* pools);
// Makes it a pool with one user; returns its number. `label` may be NULL.
tide_pool tide__pools_add(tide__pools* pools, tide__pool_base* pool, const uint64_t label[2]);

// Add a user, remove one, or count them. `call` as above.
tide_status tide__pools_retain(tide__pools* pools, tide_pool number, const char* call);
tide_status tide__pools_drop(tide__pools* pools, tide_pool number, const char* call);
tide_status tide__pools_users(tide__pools* pools, tide_pool number, const char* call, uint32_t* out);
bool tide__pools_is_used(tide__pools* pools, const tide__pool_base* pool);

// Makes the caller a guest of a pool, which keeps the pool; and ends that.
void tide__pools_visit(tide__pools* pools, tide__pool_base* pool);
void tide__pools_leave(tide__pools* pools, tide__pool_base* pool);
// The same. A pool that then has neither users nor guests is removed: it is not found any more, and the
// caller owns its record until tide__pools_recycle(). Returns false if the pool stays.
bool tide__pools_remove(tide__pools* pools, tide__pool_base* pool);
void tide__pools_recycle(tide__pools* pools, tide__pool_base* pool);
// Removes a private pool and frees its record, at the end of the allocator.
void tide__pools_free(tide__pools* pools, tide__pool_base* pool);

// ---------------------------------------------------------------------------------------------------
// Scopes

// Opens a scope on a pool with users, and closes it. Closing waits for requests that are calling filters,
// except inside a filter.
tide_status tide__pools_begin(tide__pools* pools, tide_pool number, const tide__scope* scope,
                              const char* call);
tide_status tide__pools_end(tide__pools* pools, tide_pool number, const char* call);
// The open scope of a pool, or NULL.
const tide__scope* tide__pools_scope_locked(const tide__pools* pools, const tide__pool_base* pool);
// Is a scope open on another pool, that is not a region?
bool tide__pools_is_captured_elsewhere(tide__pools* pools, const tide__pool_base* pool);
// The pool of a request for a stream of a device (-1: no stream), if an open scope accepts it; otherwise
// NULL. The request is then a guest of the pool.
tide__pool_base* tide__pools_choose(tide__pools* pools, tide_machine* machine, int device,
                                    tide_stream stream);

#endif
