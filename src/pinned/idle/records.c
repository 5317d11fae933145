// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `idle`: wait records with events. A thread cache holds some, so that announcing a use rarely takes the
// lock of the waits. Calls core/stream_waits.h only.
#include "pinned/idle/idle.h"

enum { TCACHE_RECORDS = 64 };  // that a thread cache holds at most

static void records_refill_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, int device) {
  uint32_t count = 0;
  if (tcache->record_count >= TCACHE_RECORDS / 2) return;
  tide__wait* list =
      tide__waits_take_idle(&pinned->waits, device, TCACHE_RECORDS / 2 - tcache->record_count, &count);
  while (list != NULL) tide__wait_push(&tcache->records, tide__wait_pop(&list));
  tcache->record_count += count;
}

static tide__wait* record_take_idle(tide_pinned_cache* pinned, int device) {
  tide__wait* record = NULL;
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  if (tcache->records == NULL || tcache->records->device != device) {
    records_refill_locked(pinned, tcache, device);
  }
  if (tcache->records != NULL && tcache->records->device == device) {
    record = tide__wait_pop(&tcache->records);
    tcache->record_count--;
  }
  tide__pin_leave(tcache);
  return record;
}

tide_status tide__pin_record_take(tide_pinned_cache* pinned, int device, tide_stream stream,
                                  tide__wait** out) {
  *out = record_take_idle(pinned, device);
  if (*out == NULL) TIDE_TRY(tide__wait_make(&pinned->waits, device, out));
  tide__wait_reset(*out, stream);
  return TIDE_OK;
}

static void records_give_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, tide__wait* list) {
  while (list != NULL && tcache->record_count < TCACHE_RECORDS) {
    tide__wait_push(&tcache->records, tide__wait_pop(&list));
    tcache->record_count++;
  }
  tide__waits_give(&pinned->waits, list);
}

void tide__pin_records_give(tide_pinned_cache* pinned, tide__wait* list) {
  if (list == NULL) return;
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  records_give_locked(pinned, tcache, list);
  tide__pin_leave(tcache);
}

void tide__pin_spares_take_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, tide__pin* list) {
  tide__wait* spares = NULL;
  for (; list != NULL; list = list->next) {
    if (list->waiter.spare != NULL) tide__wait_push(&spares, list->waiter.spare);
    list->waiter.spare = NULL;
  }
  records_give_locked(pinned, tcache, spares);
}
