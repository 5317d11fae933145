// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: replay, which runs the requests of a recording through a device allocator on the dry machine: to
// see what another setting would have done, or that the same setting does the same.
//
//   tide_replay* replay = NULL;
//   tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
//   tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
//   tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
//   tide_status status = tide_replay_new(trace, 0, NULL, &replay);
//   if (status == TIDE_OK) status = tide_device_options_parse("expandable_segments:True", &device);
//   options.device = &device;
//   if (status == TIDE_OK) status = tide_replay_run(replay, &options, &result);
//   if (status == TIDE_OK) printf("%llu bytes\n", (unsigned long long)result.peak_reserved);
//   tide_replay_free(replay);
//
// The recording gives requests, releases and, when it is compared, the addresses of new segments; never the
// address of an allocation. A request lives from its ALLOC to its FREE_COMPLETED; a release whose completion
// does not follow at once waits for work that ends at that entry. Time is the number of the entry. See
// docs/replay.md.
#ifndef TIDEMARK_REPLAY_H
#define TIDEMARK_REPLAY_H

#include "tidemark/device.h"

TIDE_BEGIN_DECLS

typedef struct tide_replay tide_replay;  // opaque; freed by tide_replay_free()

typedef struct tide_replay_options {
  uint32_t size;  // set by TIDE_REPLAY_OPTIONS_INIT
  // Compares with the recording: every address, every segment in its order, every refusal, and what is left.
  // Addresses of new segments are then those of the recording. Where memory was given back without a reason
  // of the policy's, the cache is taken to have been emptied.
  bool checks;
  bool stops_at_oom;  // at the first request that is refused
  // The cache is emptied where the last run that checked found so, or where nothing else can have happened;
  // set by _INIT.
  bool empties;
  uint64_t limit;                     // bytes the allocator may reserve; TIDE_NO_LIMIT
  uint64_t capacity;                  // bytes of the device, of which memory_fraction is a share; 0: 1 TiB
  const tide_device_options* device;  // of the allocator; caller keeps; NULL: the defaults
  // (optional) Called now and then with the number of entries done; false ends the run with TIDE_ERR_STATE.
  bool (*on_progress)(void* user, uint64_t done, uint64_t count);
  void* user;  // caller keeps
  // Every size is multiplied by it and rounded down, to 1 byte at least: the same program with larger
  // batches, as far as that goes. Above 0 and at most 1024; 1 if it checks; set by _INIT.
  double scale;
} tide_replay_options;
// clang-format off
#define TIDE_REPLAY_OPTIONS_INIT                                                                  \
  { TIDE_FIELD(size, sizeof(tide_replay_options)), TIDE_FIELD(checks, false),                     \
    TIDE_FIELD(stops_at_oom, false), TIDE_FIELD(empties, true), TIDE_FIELD(limit, TIDE_NO_LIMIT), \
    TIDE_FIELD(capacity, 0), TIDE_FIELD(device, NULL),                                            \
    TIDE_FIELD(on_progress, NULL), TIDE_FIELD(user, NULL), TIDE_FIELD(scale, 1) }
// clang-format on

#define TIDE_REPLAY_TENTHS 10

typedef struct tide_replay_result {
  uint32_t size;                  // set by TIDE_REPLAY_RESULT_INIT
  uint64_t entries;               // that were replayed
  uint64_t allocations;           // that were made
  uint64_t skipped;               // releases of blocks that the recording does not tell of
  uint64_t blocks_before;         // that were there before the recording, and were requested first
  uint64_t bytes_before;          // asked for by these, when they were recorded
  uint64_t mismatched_addresses;  // checks: allocations that lie elsewhere
  uint64_t mismatched_segments;   // checks: anything else that differs
  uint64_t peak_allocated;  // peak of live requests, each rounded up to 512 bytes, whatever the policy does
  uint64_t peak_reserved;   // peak of physical memory held from the machine
  uint64_t peak_blocks;     // peak of bytes in blocks handed out, as the policy counts
  uint64_t driver_allocs;
  uint64_t driver_frees;
  uint64_t retries;
  uint64_t ooms;
  uint64_t first_oom;  // number of the entry; UINT64_MAX: none
  uint64_t oom_bytes;  // asked for then
  uint64_t inferred_empty_cache;
  uint64_t driver_calls;  // of all kinds that manage memory
  uint64_t driver_ns;     // what they would cost on the machine that the dry machine's costs describe
  uint64_t span_ns;       // recorded time, from the first entry to the last
  uint64_t run_ns;        // that this replay took of real time, preparation left out
  // By tenths of the entries. Remapping is unmapping, mapping and access of memory that existed already.
  uint64_t driver_calls_by_tenth[TIDE_REPLAY_TENTHS];
  uint64_t driver_ns_by_tenth[TIDE_REPLAY_TENTHS];
  uint64_t remap_ns_by_tenth[TIDE_REPLAY_TENTHS];
  char mismatch[400];  // the first mismatch in words; empty: none
} tide_replay_result;
#define TIDE_REPLAY_RESULT_INIT TIDE_SIZED(tide_replay_result)

// Prepares the entries of one device: which release belongs to which request, which pool each request went
// to, when releases complete. A device without entries has nothing to replay. Of a recording that begins in
// the middle, the blocks that were there before are requested first, in the order of their addresses: the
// ledger knows them. The trace is borrowed until the replay is freed and may not change; the caller keeps
// `heap` until then, NULL for malloc.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_LIMIT for 2^27 entries and more, or above 1024 streams;
//          TIDE_ERR_NO_MEMORY.
// Cost:    O(n); 24 bytes for each request and release.
TIDE_API TIDE_NODISCARD tide_status tide_replay_new(const tide_trace* trace, size_t device,
                                                    const tide_heap* heap, tide_replay** out);
TIDE_API void tide_replay_free(tide_replay* replay);

// The settings the recording was made with, as far as it tells: PyTorch writes them into a snapshot. What is
// not told has its default.
TIDE_API tide_device_options tide_replay_recorded_options(const tide_replay* replay);

// Replays once, from an empty allocator; NULL options are the defaults. A replay can be run any number of
// times. A mismatch is no error: all other figures are then those of a run without comparing. A recording
// that begins in the middle cannot be repeated exactly, and says so as a mismatch.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY; TIDE_ERR_STATE from on_progress; what the allocator says
//          beside running out of memory.
// Threads: several at once with one replay, unless one of them checks.
// Cost:    of an entry some 50 ns, 120 ns when it checks; and as much again for each guess that was wrong.
TIDE_API TIDE_NODISCARD tide_status tide_replay_run(tide_replay* replay, const tide_replay_options* options,
                                                    tide_replay_result* out);

TIDE_END_DECLS
#endif
