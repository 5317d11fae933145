// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The file of a ledger, version 1. docs/ledger.md describes the format and the protocol.
//
// All values that change are words: 36 bits of value and 28 bits of check, which depends on the value, the
// place of the word and a number of the file. Sizes are in units of 4 KiB. A word is read and written by one
// atomic instruction, so it is never half written. A word whose check is wrong was damaged, and is not used.
// Each slot has one writer, its member, except for the shares; so no state is spread over words of several
// writers, and a process that is killed leaves nothing to repair but its own slot, which the kernel unlocks.
#ifndef TIDEMARK_SRC_QUOTA_FORMAT_H
#define TIDEMARK_SRC_QUOTA_FORMAT_H

#include "base/atomic.h"
#include "base/check.h"
#include "base/random.h"
#include "tidemark/quota.h"

#define TIDE__QUOTA_MAGIC UINT64_C(0x31524744454c4d54)  // "TMLEDGR1"
#define TIDE__QUOTA_VERSION 1u
#define TIDE__QUOTA_VALUE_BITS 36
#define TIDE__QUOTA_VALUE_MASK ((UINT64_C(1) << TIDE__QUOTA_VALUE_BITS) - 1)
#define TIDE__QUOTA_UNIT UINT64_C(4096)
#define TIDE__QUOTA_MOST (TIDE__QUOTA_VALUE_MASK - 1)  // units
#define TIDE__QUOTA_UNLIMITED TIDE__QUOTA_VALUE_MASK   // of a limit; and a value that is not known

// Written once, before the magic number. Each member keeps a copy and writes it again if it was damaged.
typedef struct tide__quota_head {
  uint64_t magic;
  uint32_t version;
  uint32_t slot_count;
  uint32_t slot_bytes;
  uint32_t file_bytes;
  uint64_t nonce;  // a random number; part of every check
  uint64_t made_ns;
  uint64_t unused[2];
  uint32_t zero;
  uint32_t checksum;  // CRC-32C of all before it
} tide__quota_head;
#define TIDE__QUOTA_HEAD_WORDS (sizeof(tide__quota_head) / sizeof(uint64_t))
TIDE_STATIC_ASSERT(sizeof(tide__quota_head) == 64);

// The words of a slot.
typedef enum tide__quota_word {
  TIDE__WORD_PID,        // 0: the slot is empty
  TIDE__WORD_SPACE,      // the PID namespace
  TIDE__WORD_JOINED,     // seconds since 1970
  TIDE__WORD_FLAGS,      // 1: has a helper
  TIDE__WORD_GUARANTEE,  // the shares: set by any process that holds the control lock
  TIDE__WORD_LIMIT,
  TIDE__WORD_PRIORITY,  // plus TIDE_QUOTA_PRIORITY
  TIDE__WORD_USED,      // what the member holds, in units, as all sizes
  TIDE__WORD_CLAIM,     // what it will hold if its take succeeds; otherwise as used; never below that
  TIDE__WORD_COPY,      // of the claim: one of the two may be damaged
  TIDE__WORD_WANT,      // what it waits for
  TIDE__WORD_SINCE,     // when it began to wait, in milliseconds
  TIDE__WORD_ALIVE,     // when it looked last while it waits, in milliseconds
  TIDE__WORD_MISSING,   // what the members in `asked` should free
  TIDE__WORD_ASKED,     // a bit for each slot
  TIDE__WORD_REQUEST,   // twice the number of the request, plus 1 for parking
  TIDE__WORD_PEAK,
  TIDE__WORD_WAITS,
  TIDE__WORD_FAILURES,
  TIDE__WORD_GIVEN,
  TIDE__WORD_COUNT
} tide__quota_word;

#define TIDE__QUOTA_NAME_WORDS (TIDE_QUOTA_NAME / sizeof(uint64_t))

typedef struct tide__quota_slot {
  tide__atomic_u64 words[TIDE__WORD_COUNT];
  tide__atomic_u64 name[TIDE__QUOTA_NAME_WORDS];  // for people; not checked
  tide__atomic_u32 bell;                          // a futex; any change means: look for requests
  uint32_t unused;
  uint64_t more[32 - TIDE__WORD_COUNT - TIDE__QUOTA_NAME_WORDS - 1];
} tide__quota_slot;
TIDE_STATIC_ASSERT(sizeof(tide__quota_slot) == 256);

// The mapped file.
typedef struct tide__quota_map {
  tide__atomic_u64 head[64];   // a tide__quota_head, then zeros
  tide__atomic_u64 totals[2];  // two words, equal but while the total is set
  tide__atomic_u32 changed;    // a futex; any change means: memory may be free
  uint32_t unused;
  uint64_t more[61];
  tide__quota_slot slots[TIDE_QUOTA_MEMBERS];
  // answers[a][b]: the last request of slot b that slot a has answered. Not checked: a wrong value makes a
  // member wait for an answer until its patience ends, or not at all.
  tide__atomic_u32 answers[TIDE_QUOTA_MEMBERS][TIDE_QUOTA_MEMBERS];
} tide__quota_map;
#define TIDE__QUOTA_FILE_BYTES UINT64_C(16384)
TIDE_STATIC_ASSERT(sizeof(tide__quota_map) <= TIDE__QUOTA_FILE_BYTES);
TIDE_STATIC_ASSERT(offsetof(tide__quota_map, slots) == 1024);
// All processes must agree that these instructions need no lock of their own.
TIDE_STATIC_ASSERT(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_LONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2);
TIDE_STATIC_ASSERT(sizeof(tide__atomic_u64) == 8 && sizeof(tide__atomic_u32) == 4);

// Where the kernel's locks lie: one byte of each slot, and one of the total (the control lock).
static inline uint64_t tide__quota_slot_at(uint32_t slot) {
  return offsetof(tide__quota_map, slots) + slot * sizeof(tide__quota_slot);
}
#define TIDE__QUOTA_CONTROL_AT offsetof(tide__quota_map, totals)

// ---------------------------------------------------------------------------------------------------
// Words

#define TIDE__QUOTA_TOTAL_PLACE UINT64_C(0xfff0)  // of the first; the second follows

static inline uint64_t tide__quota_place(uint32_t slot, tide__quota_word word) {
  return (uint64_t)slot * 32 + (uint64_t)word;
}

// A word is never 0, so that memory that was cleared is recognised.
static inline uint64_t tide__quota_encode(uint64_t nonce, uint64_t place, uint64_t value) {
  const uint64_t mixed = tide__random_mix(nonce ^ tide__random_mix(value + (place << 48)));
  return value | (mixed >> TIDE__QUOTA_VALUE_BITS | 1) << TIDE__QUOTA_VALUE_BITS;
}

static inline bool tide__quota_decode(uint64_t nonce, uint64_t place, uint64_t word, uint64_t* out) {
  const uint64_t value = word & TIDE__QUOTA_VALUE_MASK;
  if (tide__quota_encode(nonce, place, value) != word) return false;
  *out = value;
  return true;
}

// What is held or guaranteed is rounded up; limits and totals are rounded down.
static inline uint64_t tide__quota_units(uint64_t bytes) { return bytes / TIDE__QUOTA_UNIT; }
static inline uint64_t tide__quota_units_up(uint64_t bytes) {
  return tide__quota_units(bytes) + (bytes % TIDE__QUOTA_UNIT != 0 ? 1 : 0);
}
static inline uint64_t tide__quota_bytes(uint64_t units) { return units * TIDE__QUOTA_UNIT; }
// A priority is stored as a number from 0 on.
#define TIDE__QUOTA_PRIORITY_MOST (UINT64_C(2) * TIDE_QUOTA_PRIORITY)
static inline uint64_t tide__quota_priority_word(int32_t priority) {
  return (uint64_t)((int64_t)priority + TIDE_QUOTA_PRIORITY);
}
// A limit, which may be none.
static inline uint64_t tide__quota_limit_units(uint64_t bytes) {
  return bytes == TIDE_NO_LIMIT ? TIDE__QUOTA_UNLIMITED : tide__quota_units(bytes);
}
static inline uint64_t tide__quota_limit_bytes(uint64_t units) {
  return units == TIDE__QUOTA_UNLIMITED ? TIDE_NO_LIMIT : tide__quota_bytes(units);
}

#endif
