// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The common part of both policies: the table of a policy, requests, giving memory back, and the
// out-of-memory report. Uses streams, segments and lanes, and calls a policy only through its table.
#ifndef TIDEMARK_SRC_DEVICE_POLICY_POLICY_H
#define TIDEMARK_SRC_DEVICE_POLICY_POLICY_H

#include "device/budget/budget.h"
#include "device/segment/segment.h"
#include "device/stream/stream.h"

// A policy. Functions named `locked` are called with the lane's lock held.
typedef struct tide__policy {
  const char* name;
  uint64_t small_bytes;  // the largest small request, rounded
  // The size of a block for a request, and of a segment made for such a block.
  uint64_t (*round)(const tide_device_options* options, uint64_t bytes);
  uint64_t (*segment_bytes)(const tide_device_options* options, uint64_t rounded);
  // An idle block that fits, which stays in the free index; NULL if there is none. The tally is that of the
  // calling thread.
  tide__block* (*choose_locked)(const tide__request* request, const tide__tally* tally);
  // Is the rest of the block cut off and kept?
  bool (*splits)(const tide__request* request, const tide__block* block);
  // May a chosen block be handed out at once? Otherwise it is prepared first, BUSY and with no lock held. On
  // failure, or if it cannot be used now, the block is idle again and *inout is NULL. NULL: always ready.
  bool (*is_ready_locked)(const tide__request* request, const tide__block* block);
  tide_status (*prepare)(tide__request* request, tide__block** inout);
  // Finds memory where the free index has none: grows, gives memory back, waits. The block is BUSY. Called
  // with no lock held.
  tide_status (*recover)(tide__request* request, tide__block** out);
  // Puts memory of a pool that the policy keeps outside of the free indexes into them, before idle memory of
  // the pool is given back. The caller has the gate. NULL: there is no such memory.
  tide_status (*let_go)(tide_device_cache* device, tide__pool* pool);
  // Forgets memory that is parked and not needed any more, before idle memory is given back. The caller has
  // the gate. NULL: nothing is parked.
  void (*tidy)(tide_device_cache* device);
  // Makes idle memory for large blocks in the lane of a request: some or all of its `rounded` bytes, of
  // `bytes` in all. *out_bytes is how much. The caller has the gate.
  tide_status (*reserve)(tide__request* request, uint64_t* out_bytes);
  // Does a pool give its idle memory back as soon as it has no users, rather than at the next trim?
  bool gives_when_unused;
  // Adds what all threads have counted for themselves to the totals. NULL: they count in lanes only.
  void (*settle)(tide_device_cache* device);
} tide__policy;

// The policy of a pool. Plain pools, pools with their own functions for segments, and those in which each
// block is a segment always follow the policy torch.
const tide__policy* tide__policy_of(const tide_device_cache* device, tide__pool* pool);

// ---------------------------------------------------------------------------------------------------
// request.c: what both policies do with a request

// A size in whole grains, or in the steps of roundup_divisions.
uint64_t tide__round_divided(const tide_device_options* options, uint64_t bytes);
// Sets the policy of the request, its rounded size and its kind. The size of a segment is computed when one
// is needed.
void tide__request_decide(tide__request* request);
// Lets the policy choose an idle block of the request's lane. The block becomes BUSY; NULL if none fits.
tide_status tide__request_choose(tide__request* request, tide__block** out);
// For an error of the machine in virtual memory before any was ever mapped, although the probe succeeded:
// the options fall back, if they allow it, and the request follows the policy torch without virtual memory.
// Returns false if that is not the case.
bool tide__request_falls_back(tide__request* request, tide_status status);
// A rung of both policies: searches the pools whose idle memory may serve requests that would fail.
tide_status tide__rung_borrow(tide__request* request, tide__block** out);

// ---------------------------------------------------------------------------------------------------
// reclaim.c: giving memory back

// The caller of these functions has the gate.
tide_status tide__reclaim_pool(tide_device_cache* device, tide__pool* pool,
                               const tide__call_context* context);
tide_status tide__reclaim_all(tide_device_cache* device, const tide__call_context* context);
// Gives back idle memory until at least so many bytes less are reserved, as far as there is some.
tide_status tide__reclaim_some(tide_device_cache* device, uint64_t bytes, const tide__call_context* context);
// The same in one pool, which may have users; the caller is a guest of it. At least its `floor_bytes` stay
// reserved.
tide_status tide__reclaim_pool_some(tide_device_cache* device, tide__pool* pool, uint64_t bytes,
                                    const tide__call_context* context);
// The same with large memory at homes, of the default pool and of pools without users. Views stay, without
// the memory that goes.
tide_status tide__reclaim_homes(tide_device_cache* device, uint64_t bytes, const tide__call_context* context);
tide_status tide__reclaim_available(const tide__request* request, bool* out_enough);
tide_status tide__reclaim_by_age(const tide__request* request);

// ---------------------------------------------------------------------------------------------------
// stats.c

// Adds what lanes and threads have counted to the totals.
void tide__totals_settle(tide_device_cache* device);
// For the policy `tide`: lowers the peak to what is handed out or reserved now.
void tide__totals_forget_peak(tide_device_cache* device);

// ---------------------------------------------------------------------------------------------------
// oom.c

// Forgets the steps that were tried for the thread's last request.
void tide__oom_begin(void);
// One step of recovery. It returns TIDE_OK with a block, or TIDE_OK without one: then the next rung is tried.
typedef struct tide__rung {
  const char* name;
  tide_status (*climb)(tide__request* request, tide__block** out);
} tide__rung;
// Tries rungs until one yields a block, and notes what each did. Returns TIDE_ERR_NO_MEMORY after the last.
tide_status tide__oom_climb(const tide__rung* rungs, size_t count, tide__request* request, tide__block** out);
// Notes whose budget is in the way of a request, for the report. The caller has the gate.
void tide__oom_note_budgets(const tide__request* request);
// Asks other processes and tries `again`; then calls the callbacks of pressure, if there are any, and tries
// once more. The report has the steps that were tried before, and what these found. With no gate.
typedef tide_status (*tide__again_fn)(tide__request* request, tide__block** out);
tide_status tide__oom_press(tide__request* request, tide__again_fn again, tide__block** out);
// Reports that a request failed for lack of memory, calls observers, and returns TIDE_ERR_NO_MEMORY.
tide_status tide__oom_report(const tide__request* request);
// Writes the text of a report from its numbers, in the words of PyTorch on the machine "cuda".
void tide__oom_write(tide_oom* oom, const char* machine);

#endif
