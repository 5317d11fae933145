// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `stream`: the uses of a block, which are the streams it was announced to. A use is a wait record
// (core/stream_waits.h), taken when the use is announced and carried by the block until its release. So
// announcing takes memory, and releasing takes none. When the event has passed, the block keeps the record
// for its next use until it leaves the thread cache. Calls idle/records.c.
//
// One word of the block guards its uses. Bit 0 says that a thread looks at them, bit 1 that there may be
// some. A thread that announces sets bit 0, and then checks whether the handle is still good. A release ends
// the handle, and then looks at the word. So either the release finds the use, or the announcement finds that
// the handle is over and leaves the uses alone. If the release finds bit 0 clear, it takes all uses without a
// lock and leaves bit 1 to the next announcement.
#include "base/sys.h"
#include "pinned/stream/stream.h"

enum { USES_LOCKED = 1, USES_SOME = 2 };
enum { MANY_USES = 8 };  // more recorded events than this are pruned

static inline bool uses_try_lock(tide__pin* block) {
  uint32_t word = tide__load_relaxed(&block->use_word);
  return (word & USES_LOCKED) == 0 &&
         atomic_compare_exchange_strong(&block->use_word, &word, word | USES_LOCKED);
}

static void uses_lock(tide__pin* block) {
  for (uint32_t turn = 0; !uses_try_lock(block); turn++) {
    if (turn < 64) tide__cpu_relax();
    else tide__sys_sleep_ns(20000);  // the other thread may have lost its processor
  }
}

static void uses_unlock(tide__pin* block) {
  const bool has_some = tide__load_relaxed(&block->uses) != NULL;
  tide__store_release(&block->use_word, has_some ? USES_SOME : 0);  // pairs with uses_lock, uses_take
}

tide__wait* tide__pin_uses_take(tide__pin* block) {
  const uint32_t word = tide__load_seq(&block->use_word);
  if (word == 0) return NULL;
  const bool is_locked = (word & USES_LOCKED) != 0;
  if (is_locked) uses_lock(block);
  tide__wait* const uses = tide__load_relaxed(&block->uses);
  tide__store_relaxed(&block->uses, NULL);
  uint32_t some = USES_SOME;
  if (is_locked) uses_unlock(block);
  else if (uses == NULL) (void)atomic_compare_exchange_strong(&block->use_word, &some, 0);
  return uses;
}

bool tide__pin_use_again(tide__pin* block, uint32_t generation, int device, tide_stream stream) {
  if (!uses_try_lock(block)) return false;
  const bool is_live = tide__load_seq(&block->slot.generation) == generation;
  tide__wait* const use = is_live && tide__load_relaxed(&block->uses) == NULL ? block->waiter.spare : NULL;
  const bool is_done = use != NULL && use->device == device;
  if (is_done) {
    tide__wait_reset(use, stream);
    tide__store_relaxed(&block->uses, use);
    block->waiter.spare = NULL;
  }
  uses_unlock(block);
  return is_done;
}

// ---------------------------------------------------------------------------------------------------
// Adding

// Identifies a use that may have been taken off the block meanwhile.
typedef struct old_use {
  tide_event event;
  uint32_t version;
} old_use;

// Does the block have a use of this stream without an event? Its event is recorded at the release, and covers
// this use as well.
static bool uses_cover_locked(const tide__pin* block, const tide__wait* use) {
  const tide__wait* other = tide__load_relaxed(&block->uses);
  for (; other != NULL; other = other->next) {
    if (!other->is_recorded && other->stream == use->stream && other->device == use->device) return true;
  }
  return false;
}

// The oldest recorded use if there are more than MANY_USES, else NULL. Several events of one stream are kept,
// because the stream may have been freed between them, and another may have its handle now.
static const tide__wait* uses_oldest_locked(const tide__pin* block) {
  const tide__wait* oldest = NULL;
  uint32_t count = 0;
  for (const tide__wait* use = tide__load_relaxed(&block->uses); use != NULL; use = use->next) {
    if (!use->is_recorded) continue;
    count++;
    if (oldest == NULL || use->begin < oldest->begin) oldest = use;
  }
  return count > MANY_USES ? oldest : NULL;
}

// Takes a use off a block, if it still has it.
static void uses_remove(tide_pinned_cache* pinned, tide__pin* block, uint32_t generation,
                        const old_use* old) {
  tide__wait* found = NULL;
  uses_lock(block);
  if (tide__load_seq(&block->slot.generation) == generation) {
    tide__wait* before = NULL;
    found = tide__load_relaxed(&block->uses);
    while (found != NULL && (found->event != old->event || found->version != old->version)) {
      before = found;
      found = found->next;
    }
    if (found != NULL && before != NULL) before->next = found->next;
    else if (found != NULL) tide__store_relaxed(&block->uses, found->next);
  }
  uses_unlock(block);
  if (found != NULL) found->next = NULL;
  tide__pin_records_give(pinned, found);
}

// Drops the oldest use if its work is done, so that a block that is announced often does not gather events.
static void uses_prune(tide_pinned_cache* pinned, tide__pin* block, uint32_t generation, const old_use* old) {
  bool is_done = false;
  tide_error before;
  tide__error_keep(&before);
  const tide__relaxed relaxed = tide__relax_or_not(pinned->machine);
  const tide_status status = tide_machine_event_query(pinned->machine, old->event, &is_done);
  tide__relax_end(&relaxed);
  if (status != TIDE_OK) tide__error_restore(&before);
  if (is_done) uses_remove(pinned, block, generation, old);
}

bool tide__pin_use_add(tide_pinned_cache* pinned, tide__pin* block, uint32_t generation, tide__wait* use) {
  uses_lock(block);
  const bool is_live = tide__load_seq(&block->slot.generation) == generation;
  const bool is_added = is_live && !uses_cover_locked(block, use);
  if (is_added) {
    use->next = tide__load_relaxed(&block->uses);
    tide__store_relaxed(&block->uses, use);
  }
  const tide__wait* const oldest = is_live ? uses_oldest_locked(block) : NULL;
  const old_use old = { oldest != NULL ? oldest->event : NULL, oldest != NULL ? oldest->version : 0 };
  uses_unlock(block);
  if (!is_added) tide__pin_records_give(pinned, use);
  if (old.event != NULL) uses_prune(pinned, block, generation, &old);
  return is_live;
}
