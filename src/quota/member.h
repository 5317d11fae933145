// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A member of a ledger, inside its process. What it holds is known here; the file has a copy for the others,
// which is written again whenever it differs. What others hold is read from the file. If that is damaged,
// nothing can be taken until its member has repaired it. Of other words the last good value is used.
//
// How two takes exclude each other without a lock: a member writes its claim, then reads the claims of all
// others, and only then writes what it uses. Writes and reads are sequentially consistent, so of two members
// that take at the same time at least one sees the claim of the other. A claim counts like memory in use. A
// member that is stopped or killed in the middle keeps nobody waiting.
#ifndef TIDEMARK_SRC_QUOTA_MEMBER_H
#define TIDEMARK_SRC_QUOTA_MEMBER_H

#include "base/fork.h"
#include "base/lock.h"
#include "quota/file.h"

// The requests that this member makes while it waits. Stages follow each other by step and priority.
typedef struct tide__quota_round {
  uint32_t stage;    // the step times 65536, and the priority in the file; 0: before the first stage
  uint32_t request;  // its number
  uint64_t asked;    // the members of this stage, a bit for each slot
  uint64_t due_ns;   // when the next stage begins although answers are missing
} tide__quota_round;

struct tide_quota {
  tide__atomic_u32 is_inherited;  // in a child of fork()
  tide__fork_note fork_note;
  const tide_heap* heap;  // borrowed
  char ledger[TIDE_QUOTA_LEDGER];
  char name[TIDE_QUOTA_NAME];
  uint64_t wait_ns;
  tide_quota_ask_fn on_ask;
  void* user;  // borrowed
  bool has_helper;
  pthread_t helper;
  tide__atomic_u32 is_ending;     // the helper should end
  tide__atomic_u32 is_stopped;    // nobody waits any more
  tide__atomic_u32 is_answering;  // a thread is in tide__quota_answer()
  tide__atomic_u32 is_postponed;  // requests to park may be unanswered
  tide__atomic_u32 bell_seen;     // the bell when it was answered last
  tide__atomic_u32 slot;          // of this member; changes if the file is made again

  tide__mutex lock;  // guards all below; no callback or futex is waited for with it
  tide__quota_file file;
  uint64_t total;       // the last good one, in units
  uint64_t used_bytes;  // own[TIDE__WORD_USED] is this, rounded up
  uint64_t own[TIDE__WORD_COUNT];
  uint64_t seen[TIDE_QUOTA_MEMBERS][TIDE__WORD_COUNT];  // the last good values; UNLIMITED: not known
  uint32_t answered[TIDE_QUOTA_MEMBERS];                // requests of others that were answered
  uint32_t waiters;                                     // threads that wait in a take
  bool is_driven;                                       // one of them makes the requests
  uint32_t last_request;
  tide__quota_round round;
};

// Brings the file up to date, before anything else is done with it: mends or replaces the file, takes over
// shares and the total that others have set, and repairs the words of this member.
tide_status tide__quota_refresh_locked(tide_quota* quota, const char* call) TIDE_REQUIRES(quota->lock);

// Sets a word of this member, here and in the file.
void tide__quota_set_locked(tide_quota* quota, tide__quota_word word, uint64_t value);

// A word of another member: as it is, or as it was when it was good.
uint64_t tide__quota_peek_locked(tide_quota* quota, uint32_t slot, tide__quota_word word);

// The clock of the words `since` and `alive`.
uint64_t tide__quota_now_ms(void);

// What a take finds.
typedef enum tide__quota_fit {
  TIDE__QUOTA_FITS,     // the bytes are taken
  TIDE__QUOTA_FULL,     // others hold them
  TIDE__QUOTA_OVER,     // beyond the member's own limit
  TIDE__QUOTA_HOPELESS  // the guarantees of others never leave so much
} tide__quota_fit;
// Takes bytes if they are free. `out_missing` is what others would have to free, in units.
tide__quota_fit tide__quota_try_locked(tide_quota* quota, uint64_t bytes, uint64_t* out_missing);

// What this member may hold in all without asking, in units.
uint64_t tide__quota_most_locked(tide_quota* quota);

// Empties the slots of members whose processes have ended. Returns whether there were any.
bool tide__quota_reap_locked(tide_quota* quota);

// Ends the waiting of threads in tide_quota_take(), which then fails as if the time were over; so does each
// later one. Any thread, before tide_quota_leave().
void tide__quota_stop(tide_quota* quota);

// Waits for `bytes`, and asks others for them (wait.c).
tide__quota_fit tide__quota_wait(tide_quota* quota, uint64_t bytes);

// Answers all requests to this member up to a step (answer.c). Does nothing if a thread is doing so.
void tide__quota_answer(tide_quota* quota, tide_quota_step most);
// Is the calling thread inside on_ask of this member?
bool tide__quota_is_answering(const tide_quota* quota);
// Is there anything to answer, up to a step?
bool tide__quota_is_rung(const tide_quota* quota, tide_quota_step most);
int tide__quota_helper_start(tide_quota* quota);
void tide__quota_helper_end(tide_quota* quota);

#endif
