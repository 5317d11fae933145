// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Copies between ordinary host memory and a device that are complete when the call returns. The bytes go in
// pieces through two blocks of the cache: while the device copies one piece, the processor moves the next. An
// event behind each copy makes the call wait for its own work and for earlier work of the stream only. No
// lock is held. Calls alloc.c, release.c and record.c.
#include <string.h>

#include "pinned/calls.h"

enum { STAGE_SLOTS = 2 };
#define STAGE_BYTES ((size_t)4 << 20)  // the size of a piece, at most

// One block. [G1] while bytes is not 0, a copy from or to the block is queued and not waited for
typedef struct stage_slot {
  tide_block block;
  tide_event event;  // owned
  size_t bytes;
  void* host;  // where a download goes in the end
} stage_slot;

typedef struct staging {
  tide_pinned_cache* pinned;
  int device;
  tide_stream stream;
  bool is_upload;
  size_t slot_count;
  stage_slot slots[STAGE_SLOTS];
} staging;

// The memory of the dry machine has no contents.
static void stage_move(const staging* s, void* to, const void* from, size_t bytes) {
  if (!s->pinned->is_dry) memcpy(to, from, bytes);
}

// Waits for the copy of a block. A download moves its bytes on to the caller.
static tide_status slot_finish(const staging* s, stage_slot* slot) {
  if (slot->bytes == 0) return TIDE_OK;
  TIDE_TRY(tide_machine_event_synchronize(s->pinned->machine, slot->event));
  if (!s->is_upload) stage_move(s, slot->host, slot->block.address, slot->bytes);
  slot->bytes = 0;
  return TIDE_OK;
}

static tide_status slot_begin(const staging* s, stage_slot* slot, char* to, const char* from, size_t bytes) {
  tide_machine* const machine = s->pinned->machine;
  TIDE_TRY(slot_finish(s, slot));
  if (s->is_upload) stage_move(s, slot->block.address, from, bytes);
  TIDE_TRY(tide_machine_copy(machine, s->device, s->stream, s->is_upload ? to : slot->block.address,
                             s->is_upload ? slot->block.address : from, bytes));
  slot->bytes = bytes;
  slot->host = to;
  return tide_machine_event_record(machine, s->device, slot->event, s->stream);
}

static tide_status stage_run(staging* s, char* to, const char* from, size_t bytes) {
  size_t turn = 0;
  for (size_t done = 0; done < bytes; done += STAGE_BYTES) {
    const size_t piece = tide__min(bytes - done, STAGE_BYTES);
    TIDE_TRY(slot_begin(s, &s->slots[turn++ % s->slot_count], to + done, from + done, piece));
  }
  for (size_t i = 0; i < s->slot_count; i++) TIDE_TRY(slot_finish(s, &s->slots[turn++ % s->slot_count]));
  return TIDE_OK;
}

static tide_status slot_open(staging* s, size_t bytes) {
  stage_slot* const slot = &s->slots[s->slot_count];
  TIDE_TRY(tide_machine_event_new(s->pinned->machine, s->device, &slot->event));
  const tide_status status = tide_pinned_alloc(s->pinned, bytes, &slot->block);
  if (status == TIDE_OK) s->slot_count++;
  else tide__ignore(tide_machine_event_free(s->pinned->machine, slot->event));
  return status;
}

// One block is enough if there is no memory for two.
static tide_status stage_open(staging* s, size_t bytes) {
  TIDE_TRY(slot_open(s, tide__min(bytes, STAGE_BYTES)));
  tide_error before;
  tide__error_keep(&before);
  if (bytes > STAGE_BYTES && slot_open(s, tide__min(bytes - STAGE_BYTES, STAGE_BYTES)) != TIDE_OK) {
    tide__error_restore(&before);
  }
  return TIDE_OK;
}

// Gives a block back. After a failure its copy may still run, so the stream is waited for or announced. If
// both fail, the block is never used again.
static void slot_close(const staging* s, stage_slot* slot) {
  const bool is_safe = slot->bytes == 0 ||
                       tide_machine_stream_synchronize(s->pinned->machine, s->device, s->stream) == TIDE_OK ||
                       tide_pinned_record(s->pinned, slot->block, s->device, s->stream) == TIDE_OK;
  tide__ignore(tide_machine_event_free(s->pinned->machine, slot->event));
  if (is_safe) tide__ignore(tide_pinned_release(s->pinned, slot->block));
}

static tide_status stage_copy(tide_pinned_cache* pinned, int device, tide_stream stream, void* to,
                              const void* from, size_t bytes, bool is_upload) {
  const char* const call = is_upload ? "pinned_upload" : "pinned_download";
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "%s: no cache", call);
  TIDE_REQUIRE(device >= 0 && device < pinned->device_count, TIDE_ERR_DEVICE, "%s: there is no device %d",
               call, device);
  if (bytes == 0) return TIDE_OK;
  TIDE_REQUIRE(to != NULL && from != NULL, TIDE_ERR_ARGUMENT, "%s: an address is NULL", call);
  TIDE_REQUIRE(bytes < TIDE__PIN_MAX_REQUEST, TIDE_ERR_ARGUMENT, "%s: %zu bytes", call, bytes);
  bool is_captured = false;
  TIDE_TRY(tide__capture_ask(pinned->machine, device, stream, &is_captured));
  TIDE_REQUIRE(!is_captured, TIDE_ERR_CAPTURE, "%s: the stream is captured, and cannot be waited for", call);
  staging s = { .pinned = pinned, .device = device, .stream = stream, .is_upload = is_upload };
  tide_status status = stage_open(&s, bytes);
  if (status == TIDE_OK) status = stage_run(&s, to, from, bytes);
  tide_error before;
  tide__error_keep(&before);
  for (size_t i = 0; i < s.slot_count; i++) slot_close(&s, &s.slots[i]);
  tide__error_restore(&before);
  return status;
}

tide_status tide_pinned_upload(tide_pinned_cache* pinned, int device, tide_stream stream, void* destination,
                               const void* source, size_t bytes) {
  return stage_copy(pinned, device, stream, destination, source, bytes, true);
}

tide_status tide_pinned_download(tide_pinned_cache* pinned, int device, tide_stream stream, void* destination,
                                 const void* source, size_t bytes) {
  return stage_copy(pinned, device, stream, destination, source, bytes, false);
}
