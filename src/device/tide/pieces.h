// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pieces: idle memory of homes that is gathered for a block in a view. The caller has the gate. Functions
// named `locked` are called with all lanes locked that have homes the request may use.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_PIECES_H
#define TIDEMARK_SRC_DEVICE_TIDE_PIECES_H

#include "device/tide/home.h"

// What is gathered for a request.
typedef struct tide__gathering {
  const tide__request* request;
  uint64_t look;        // that of the growth; 0: none, so that every survey is made anew
  tide__spares spares;  // taken from those of the allocator
  tide__block* pieces;  // taken, in order, by heap_next
  tide__block** last_piece;
  bool can_wait;   // the request's stream may wait for marks of others
  bool takes_all;  // the caller waits for all work behind the pieces, before it uses them
} tide__gathering;

// May a request use memory of a home? Not memory of TIDE_STREAM_PER_THREAD, for which no other stream can
// wait.
static inline bool tide__home_is_open(const tide__request* request, const tide__segment* segment) {
  const tide__lane* const lane = segment->lane;
  const bool is_of_thread = lane->stream == TIDE_STREAM_PER_THREAD ||
                            request->lane->stream == TIDE_STREAM_PER_THREAD;
  return lane->pool == request->pool && (lane == request->lane || !is_of_thread);
}

#define TIDE__HOMES_EACH(it, request)           \
  TIDE_LIST_EACH(it, &(request)->device->homes) \
  if (tide__home_is_open(request, TIDE_OWNER(it, tide__home, link)->segment))

// Locks all lanes with homes that a request may use, and its own; and unlocks them.
void tide__homes_lock(const tide__request* request);
void tide__homes_unlock(const tide__request* request);
// Brings the survey up to date for the request. Nothing is done if the last one was made for the same look,
// and nothing has changed since.
void tide__survey_locked(const tide__gathering* g);
// The same, and lists the handles with memory that the request may use.
void tide__survey_list_locked(const tide__gathering* g);
// Finds out what the request may use of a handle: its prefix and suffix.
void tide__handle_survey_locked(const tide__gathering* g, tide__handle* handle);
static inline tide__handle* tide__handle_look_locked(const tide__gathering* g, tide__handle* handle) {
  if (handle->survey != g->request->device->survey.number) tide__handle_survey_locked(g, handle);
  return handle;
}
// May the request use the largest hole inside a handle?
bool tide__inner_is_usable_locked(const tide__gathering* g, const tide__handle* handle);
// May the request use all of it?
static inline bool tide__handle_is_whole_locked(const tide__gathering* g, tide__handle* handle) {
  return handle->idle_prefix == handle->bytes && tide__handle_look_locked(g, handle)->prefix == handle->bytes;
}

// Takes at least `count` spare records, those of the allocator first; and gives the rest to it.
tide_status tide__spares_get(tide__gathering* g, size_t count);
void tide__spares_give(tide__gathering* g);
// The most records that a view of this many handles needs.
static inline size_t tide__spares_for(size_t handles) { return 2 * handles + 8; }

// Makes sure that a lane has two spare records, which cutting out a piece needs at most.
void tide__lane_supply_locked(tide__gathering* g, tide__lane* lane);

// The block over an address, from one that is near.
static inline tide__block* tide__chain_find(tide__block* near, uint64_t address) {
  while (near->address > address) near = near->prev;
  while (tide__block_end(near) <= address) near = near->next;
  return near;
}

// Adds a piece after those that were taken.
void tide__piece_add(tide__gathering* g, tide__block* block);
// Takes `bytes` of handles one after another, from an offset in the first. Handles that are adjacent at home
// are one piece. Returns false, with the pieces taken so far, if memory is not idle any more.
bool tide__pieces_take_locked(tide__gathering* g, tide__handle* const* handles, size_t count, uint64_t start,
                              uint64_t bytes);
// Makes the request's stream wait for the lanes that used the pieces before. Pieces of its own home need no
// wait.
void tide__pieces_settle(const tide__gathering* g, const tide__block* pieces);
// Makes everything that was taken idle again.
void tide__pieces_give_up(tide__gathering* g);

#endif
