// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Moves the memory of mapped ranges away and back: copies what is alive to a store, unmaps and frees the
// rest, and the other way round. It knows addresses, handles and bytes, but neither blocks nor pools. The
// caller has the gate, and no lock is held.
#ifndef TIDEMARK_SRC_DEVICE_PARK_PARK_H
#define TIDEMARK_SRC_DEVICE_PARK_PARK_H

#include "device/segment/virtual.h"

// ---------------------------------------------------------------------------------------------------
// store.c: where contents are kept

// Host memory or a file for a number of bytes. A store is used by one thread at a time.
typedef struct tide__store tide__store;

// Makes a store. Its memory is made when it is used, or ahead by tide__store_prepare(), in other threads.
// `folder` is for a file.
tide_status tide__store_new(tide_device_cache* device, tide_backup kind, const char* folder, uint64_t bytes,
                            tide__store** out);
tide_status tide__store_prepare(tide__store* store);
// Waits for the thread that prepares it. No copy may be under way. NULL is a no-op.
void tide__store_free(tide__store* store);
tide_backup tide__store_kind(const tide__store* store);  // pageable, where pinned memory cannot be locked
uint64_t tide__store_bytes(const tide__store* store);    // for contents; what it really takes, when made
// The host memory at an offset; NULL for a file.
const void* tide__store_data(const tide__store* store, uint64_t offset);
// Reads contents. Errors: TIDE_ERR_MACHINE if they cannot be read.
tide_status tide__store_read(tide__store* store, uint64_t offset, uint64_t bytes, void* destination);

// ---------------------------------------------------------------------------------------------------
// cargo.c: away and back

// A mapped range with physical memory of its own. While it is away it has none. Without bytes, it is none.
typedef struct tide__parcel {
  uint64_t address;
  uint64_t bytes;
  tide_physical physical;  // owned by the caller's records; NULL: away
  bool is_first;           // of its reservation: no call reaches across it
} tide__parcel;

// A range whose contents matter, inside parcels; a range may go across the border of two that are adjacent.
typedef struct tide__content {
  uint64_t address;
  uint64_t bytes;
  uint64_t offset;  // in the store
  bool is_lost;     // it could not be read back
} tide__content;

// Both arrays are sorted by address and borrowed during a call.
typedef struct tide__cargo {
  tide__parcel* parcels;
  size_t parcel_count;
  tide__content* contents;
  size_t content_count;
  tide__store* store;  // NULL: contents are discarded
  // When they are fetched, adjacent parcels up to this size are cut anew into handles of this size and a
  // rest; 0: they stay as they were.
  uint64_t handle_bytes;
  uint64_t group_bytes;  // of adjacent parcels that are mapped or unmapped in one call; 0: 32 MiB
  bool is_saved;         // the store has the contents: sending them copies nothing
  // Sending waits for these events instead of all work of the device; NULL: for all work.
  const tide_event* events;
  size_t event_count;
} tide__cargo;

typedef struct tide__cargo_count {
  uint64_t physical_bytes;
  uint64_t copied_bytes;
} tide__cargo_count;

// Sends all parcels away that are there, behind all work that is queued on the device: copies their contents
// on a stream of its own, and unmaps and frees each parcel when its copy is done, while later ones are being
// copied. Returns when all are away. On failure it fetches those that are gone. `physical` tells for each
// parcel whether it is away.
tide_status tide__cargo_send(tide_device_cache* device, tide__cargo* cargo, tide__cargo_count* out);

// Fetches all parcels that are away: makes and maps memory with access for the device and its peers, and
// copies contents back. On failure, those that it fetched are away again, and the store still has
// everything. With `handle_bytes`, the parcels get new addresses and sizes, even if it fails, and those that
// are not needed have 0 bytes. `*out_done` is an event behind the last copy, NULL: the contents are there.
// The allocator owns the event, and a later fetch records it again. The store must live until it has passed.
tide_status tide__cargo_fetch(tide_device_cache* device, tide__cargo* cargo, tide__cargo_count* out,
                              tide_event* out_done);

// Frees the stream and the events that parking uses, and stores that could not be freed, at the end of the
// allocator.
void tide__cargo_fini(tide_device_cache* device);

// ---------------------------------------------------------------------------------------------------
// backups.c: stores in use, kept, and made ahead

// A store with contents of pools that were parked together, or one that is kept for the next time, with what
// it had last. Records change with the gate.
typedef struct tide__backup {
  struct tide__backup* next;  // of the allocator
  const char* tag;            // of the call that made it; "": all tags
  const char* folder;         // for a file; NULL: the default
  uint32_t kind;              // a tide_backup, as asked for
  uint64_t bytes;             // of contents for which it has room
  uint32_t users;             // pools whose contents are in it, or calls that work with it
  bool is_kept;               // it stays without users
  tide__store* store;         // owned
  tide__content* contents;    // owned; what it has, by address
  size_t content_count;
  size_t content_capacity;
  uint64_t print;  // of the blocks that the contents are of: see tide__freight
} tide__backup;

// Which backup a call wants.
typedef struct tide__backup_wish {
  const char* tag;
  const char* folder;
  uint32_t kind;
} tide__backup_wish;

// A kept backup, or NULL: the caller is its user.
tide__backup* tide__backup_take(tide_device_cache* device, const tide__backup_wish* wish);
// A new one, with the caller as its user.
tide_status tide__backup_new(tide_device_cache* device, const tide__backup_wish* wish, uint64_t bytes,
                             tide__backup** out);
// Takes over the list of what was written to it; forgets it, before it is written again.
void tide__backup_set_contents(tide_device_cache* device, tide__backup* backup, tide__content* contents,
                               size_t count, size_t capacity);
void tide__backup_forget(tide_device_cache* device, tide__backup* backup);
// The first of its contents that ends behind an address, as an index; their number: there is none.
size_t tide__backup_content_at(const tide__backup* backup, uint64_t address);
// A user more, and one less. Without users it is freed when no copy reads from it any more, or kept.
void tide__backup_share(tide__backup* backup);
void tide__backup_leave(tide_device_cache* device, tide__backup* backup);
// Frees backups that are not needed any more, and those that are kept for a tag or below it.
void tide__backups_sweep(tide_device_cache* device);
void tide__backups_trim(tide_device_cache* device, const char* tag);
void tide__backups_fini(tide_device_cache* device);

// ---------------------------------------------------------------------------------------------------
// arrivals.c: streams that wait for contents

// Streams that are to wait, each once.
typedef struct tide__stream_set {
  tide_stream* streams;  // owned
  size_t count;
  size_t capacity;
} tide__stream_set;

// Finds the streams that use memory of the allocator and exist: those on which blocks are handed out, those
// that are announced for such blocks, the default stream, and a list that the caller knows. Closed streams
// and external ones are left out.
// Errors: TIDE_ERR_CAPTURE if one of them is captured; TIDE_ERR_NO_MEMORY.
tide_status tide__streams_find(tide_device_cache* device, const tide_stream* more, size_t more_count,
                               tide__stream_set* out);
// Only the streams of the list. Errors: the same.
tide_status tide__streams_take(tide_device_cache* device, const tide_stream* streams, size_t count,
                               tide__stream_set* out);
void tide__streams_free(tide_device_cache* device, tide__stream_set* set);
// Contents are there when an event has passed; NULL: they are there now. The caller has the gate, as for the
// next three.
void tide__arrival_note(tide_device_cache* device, tide_event event);
// Makes streams wait for all contents that are on their way. Other streams wait at their next request. Where
// a stream cannot wait, the host does.
tide_status tide__arrival_begin(tide_device_cache* device, const tide__stream_set* set);
// The same for some streams: others wait for themselves, or need not wait. Only requests in the pool that
// is arriving wait: see is_arriving.
tide_status tide__arrival_begin_for(tide_device_cache* device, const tide__stream_set* set);
// Makes a stream wait for the arrival with a number, if that is not over.
tide_status tide__arrival_join(tide_device_cache* device, tide_stream stream, uint64_t number);
// Has everything arrived?
bool tide__arrival_is_over(tide_device_cache* device);
// Waits for it on the host, or for all up to one.
tide_status tide__arrival_wait(tide_device_cache* device);
tide_status tide__arrival_wait_for(tide_device_cache* device, uint64_t number);
// Makes the stream of a request wait, if it does not yet. With no gate.
tide_status tide__arrival_await(tide_device_cache* device, tide__pool* pool, tide_stream stream,
                                bool is_external);

#endif
