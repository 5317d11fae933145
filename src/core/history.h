// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What an allocator records: entries for what happens, with the time, the call stack and the note of the
// thread. The newest are kept in a ring if the history is switched on. Each is told (reported) to observers.
//
// An entry is made while locks are held. Observers are told afterwards, from a journal of the thread, with no
// lock held. A call therefore has three steps: tide__history_context() before its first lock,
// tide__history_add() where something changes, tide__history_tell() after its last lock.
//
// What observers may rely on:
// - An entry gets its number while its thread holds the lock of what changes. Sorted by number, entries are
//   in the order in which things happened. Their times do not go back: a thread reads the clock before its
//   first lock, so an entry that was overtaken since then gets the time of the latest before it.
// - A thread tells its own entries in order. Entries of two threads may be told in either order.
// - Entries about segments also have a turn: each is told when all before it were told, over all threads.
// - The end of memory is told before the machine takes it: tide__history_report() and tide__history_tell()
//   before that call, tide__history_keep() behind it.
#ifndef TIDEMARK_SRC_CORE_HISTORY_H
#define TIDEMARK_SRC_CORE_HISTORY_H

#include "core/observers.h"
#include "tidemark/cache.h"
#include "trace/ring.h"

enum { TIDE__STEP_ENTRIES = 16 };  // entries that one step of a call makes at most

// The call context: time, stack and note of a call; all 0 if nothing is recorded.
typedef struct tide__call_context {
  uint64_t time_ns;
  uint32_t stack;
  uint32_t note;
} tide__call_context;

typedef struct tide__history {
  tide_machine* machine;   // borrowed until fini: its clock
  uint64_t uid;            // unique in this process
  tide__atomic_u32* word;  // borrowed until fini; of the allocator, whose calls read it anyway
  uint32_t kept_bit;       // set in the word while entries are kept
  uint32_t observed_bit;   // set in the word while observers of entries are attached
  uint8_t device;          // of entries that belong to no block
  tide__atomic_u32 level;
  tide__atomic_u32 skips;
  tide_intern* names;  // owned
  tide__ring ring;
  tide__observers observers;

  tide__mutex lock;  // guards all below
  tide_history_options options;
  uint64_t next_number;  // of the next entry that observers are told about
  uint64_t latest_ns;    // the time of the one before
  uint64_t next_turn;    // of the next entry about a segment
  uint64_t told_turns;   // [H1] told_turns <= next_turn; the entry with turn told_turns may be told now
  tide__signal turn_passed;
} tide__history;

// `word`: see tide__history. observed_bit 0: there are no observers.
// Errors: TIDE_ERR_NO_MEMORY; tide__history_fini() must still be called.
tide_status tide__history_init(tide__history* history, tide_machine* machine, const tide_heap* heap,
                               tide__atomic_u32* word, uint32_t kept_bit, uint32_t observed_bit);
void tide__history_fini(tide__history* history);

// ---------------------------------------------------------------------------------------------------
// Recording

static inline bool tide__history_is_kept(const tide__history* history) {
  return (tide__load_relaxed(history->word) & history->kept_bit) != 0;
}
static inline bool tide__history_is_observed(const tide__history* history) {
  return (tide__load_relaxed(history->word) & history->observed_bit) != 0;
}
static inline bool tide__history_is_recording(const tide__history* history) {
  return (tide__load_relaxed(history->word) & (history->kept_bit | history->observed_bit)) != 0;
}

// The machine's time; 0 if the call of the machine fails. Never changes the thread's error.
uint64_t tide__history_clock(tide__history* history);
// The context of the calling thread, with its stack if the history's level is at least `level`; 0: no stack.
// Makes room for `entries` to be told. With no lock held.
tide__call_context tide__history_context(tide__history* history, uint32_t level, size_t entries);
// Makes room for entries to be told; with no lock held, after each step of a long call. An entry for which
// there is no memory is not told.
void tide__history_make_room(tide__history* history, size_t entries);
// Adds an entry, which gets the time and the note of the context. Its stack is shown from TIDE_HISTORY_ALLOC
// on. May be called with locks held.
void tide__history_add(tide__history* history, const tide__call_context* context, tide_trace_entry entry);
// Halves of tide__history_add(): only for the ring, and only for the observers.
void tide__history_keep(tide__history* history, const tide__call_context* context, tide_trace_entry entry);
void tide__history_report(tide__history* history, const tide__call_context* context, tide_trace_entry entry);
// How many entries about segments there were for observers, and whether so many were told.
uint64_t tide__history_turns(tide__history* history);
bool tide__history_has_told(tide__history* history, uint64_t turns);

// Tells the observers of the entries that this thread made; with no lock held. Waits until other threads have
// told earlier entries about segments. Entries without observers are dropped.
void tide__history_tell_all(tide__history* history);
extern _Thread_local size_t tide__untold_count;  // entries of this thread, of all histories
static inline void tide__history_tell(tide__history* history) {
  if (tide__untold_count != 0) tide__history_tell_all(history);
}

// Adds and tells an entry USER_DEFINED with a text, or SNAPSHOT with the active bytes; if anything is
// recorded. An annotation has a stack from `level` on; 0: never. With no lock held.
tide_status tide__history_annotate(tide__history* history, uint32_t level, const char* text);
void tide__history_add_snapshot(tide__history* history, uint64_t active_bytes);

// ---------------------------------------------------------------------------------------------------
// Options

// Switches the history on or off, or changes it. `call` names the call in errors.
// Errors: TIDE_ERR_ARGUMENT for a struct of a wrong size, a level out of range, and a level without exactly
//         one of `gather` and `number`; TIDE_ERR_NO_MEMORY.
tide_status tide__history_configure(tide__history* history, const char* call,
                                    const tide_history_options* options);
// Are stacks numbers that the caller gave (tide_history_options.number)?
bool tide__history_has_numbers(tide__history* history);

#endif
