// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Ranges of our own pages that are locked in pieces: which pieces are registered when, several threads,
// helpers, contents, and what is left after a refusal at any call of the machine.
#define T_THREADS
#include "machine/pinned_range.h"

#include <sys/wait.h>

#include "base/sys.h"
#include "machine/caches.h"
#include "machine/pages.h"
#include "tidemark/machine_ops.h"

#define PIECE (2 * MIB)

static tide__pinned_range* range_new(tide_machine* m, uint64_t bytes, uint64_t piece_bytes) {
  tide__pinned_range* range = NULL;
  T_OK(tide__pinned_range_new(m, NULL, bytes, piece_bytes, &range));
  T_CHECK(range != NULL);
  return range;
}

static uint8_t* range_at(const tide__pinned_range* range, uint64_t offset) {
  return (uint8_t*)(uintptr_t)(range->address + offset);
}

static uint64_t calls_done(const tide_machine* m, tide_call call) {
  const tide_call_stats stats = tide_machine_call_stats(m, call);
  return stats.calls - stats.failures;
}

static uint64_t registered(const tide_machine* m) {
  return calls_done(m, TIDE_CALL_PINNED_REGISTER) - calls_done(m, TIDE_CALL_PINNED_UNREGISTER);
}

// ---------------------------------------------------------------------------------------------------
// Pieces

MACHINE_TEST(test_pinned_range__only_the_pieces_that_are_needed_are_locked) {
  tide__pinned_range* const range = range_new(m, 5 * PIECE, PIECE);
  T_EQ(range->piece_count, 5);
  T_EQ(registered(m), 0);

  T_OK(tide__pinned_range_lock(range, PIECE + 7, PIECE));

  T_EQ(registered(m), 2);
  T_CHECK(tide__pinned_range_is_locked(range, PIECE, 2 * PIECE));
  T_CHECK(!tide__pinned_range_is_locked(range, PIECE - 1, 2));
  T_CHECK(!tide__pinned_range_is_locked(range, 3 * PIECE - 1, 2));
  T_EQ(pointer_info(m, range_at(range, PIECE)).kind, TIDE_MEMORY_PINNED);
  T_EQ(pointer_info(m, range_at(range, 0)).kind, TIDE_MEMORY_UNKNOWN);
  T_OK(tide__pinned_range_lock(range, 0, 5 * PIECE));
  T_EQ(calls_done(m, TIDE_CALL_PINNED_REGISTER), 5);
  T_OK(tide__pinned_range_free(range));
  T_EQ(registered(m), 0);
}

// The size is that of the request, rounded up to whole pages, and not a byte more is locked.
MACHINE_TEST(test_pinned_range__is_exact_in_size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  static const size_t sizes[] = { 1, 4096, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 7 * MIB + 12345 };
  for (size_t i = 0; i < 6; ++i) {
    tide__pinned_range* const range = range_new(m, sizes[i], PIECE);
    uint64_t locked = 0;
    T_EQ(range->bytes, (sizes[i] + page - 1) / page * page);
    T_EQ(range->address % (sizes[i] >= 2 * MIB ? 2 * MIB : page), 0);
    for (uint32_t k = 0; k < range->piece_count; ++k) {
      T_OK(tide__pinned_range_lock(range, k * range->piece_bytes, range->piece_bytes));
      locked += pointer_info(m, range_at(range, k * range->piece_bytes)).bytes;
    }
    T_EQ(locked, range->bytes);
    T_OK(tide__pinned_range_free(range));
  }
}

MACHINE_TEST(test_pinned_range__one_piece_can_be_the_whole_range) {
  tide__pinned_range* const range = range_new(m, 9 * MIB, 64 * MIB);
  T_EQ(range->piece_count, 1);
  T_OK(tide__pinned_range_lock(range, 0, 9 * MIB));
  T_EQ(registered(m), 1);
  T_OK(tide__pinned_range_free(range));

  tide__pinned_range* const other = range_new(m, 65 * MIB, 0);
  T_EQ(other->piece_bytes, TIDE__PINNED_PIECE_BYTES);
  T_EQ(other->piece_count, 3);
  T_OK(tide__pinned_range_free(other));
}

MACHINE_TEST(test_pinned_range__offsets_outside_are_refused) {
  tide__pinned_range* const range = range_new(m, 3 * PIECE, PIECE);
  static const uint64_t wrong[][2] = { { 0, 0 },          { 0, 3 * PIECE + 1 }, { 3 * PIECE, 1 },
                                       { 1, UINT64_MAX }, { UINT64_MAX, 1 },    { UINT64_MAX, 2 } };
  for (size_t i = 0; i < 6; ++i) {
    T_STATUS(tide__pinned_range_lock(range, wrong[i][0], wrong[i][1]), TIDE_ERR_ARGUMENT);
    T_CHECK(!tide__pinned_range_is_locked(range, wrong[i][0], wrong[i][1]));
  }
  T_EQ(registered(m), 0);
  T_OK(tide__pinned_range_free(range));
  T_OK(tide__pinned_range_free(NULL));
}

// Every byte goes to a device and back, piece by piece.
MACHINE_TEST(test_pinned_range__has_the_bytes_that_were_copied) {
  tide__pinned_range* const from = range_new(m, 4 * PIECE, PIECE);
  tide__pinned_range* const to = range_new(m, 4 * PIECE, PIECE);
  uint8_t* const there = raw_new(m, 0, PIECE);
  const tide_stream stream = side_new(m);
  tide__pinned_range_ahead(from, 0);
  tide__pinned_range_ahead(to, 0);
  for (uint64_t at = 0; at < 4 * PIECE; at += PIECE) {
    T_OK(tide__pinned_range_lock(from, at, PIECE));
    T_OK(tide__pinned_range_lock(to, at, PIECE));
    if (machine_has_memory(m)) memset(range_at(from, at), (int)(at / PIECE + 1), PIECE);
    T_OK(tide_machine_copy(m, 0, stream, there, range_at(from, at), PIECE));
    T_OK(tide_machine_copy(m, 0, stream, range_at(to, at), there, PIECE));
    T_OK(tide_machine_stream_synchronize(m, 0, stream));
  }
  for (uint64_t at = 0; at < 4 * PIECE && machine_has_memory(m); at += PIECE) {
    t_check_filled(__FILE__, __LINE__, range_at(to, at), (uint8_t)(at / PIECE + 1), PIECE);
  }
  T_OK(tide__pinned_range_free(from));
  T_OK(tide__pinned_range_free(to));
}

DRY_TEST(test_pinned_range__locking_has_a_price) {
  tide__pinned_range* const range = range_new(m, 64 * MIB, 32 * MIB);
  const uint64_t before = clock_ns(m);

  T_OK(tide__pinned_range_lock(range, 0, 64 * MIB));

  T_EQ(clock_ns(m) - before, 2 * (25000 + 32 * 63000));
  T_OK(tide__pinned_range_free(range));
}

// ---------------------------------------------------------------------------------------------------
// Threads

typedef struct locker {
  tide__pinned_range* range;
  uint64_t seed;
} locker;

static void* lock_all(void* user) {
  const locker* const l = user;
  t_rng rng = t_rng_new(l->seed);
  for (size_t i = 0; i < 64; ++i) {
    T_OK(tide__pinned_range_lock(l->range, t_rng_below(&rng, l->range->piece_count) * PIECE, PIECE));
  }
  T_OK(tide__pinned_range_lock(l->range, 0, l->range->bytes));
  return NULL;
}

MACHINE_TEST(test_pinned_range__threads_lock_each_piece_once) {
  enum { TEAM = 6, PIECES = 12 };
  pthread_t threads[TEAM];
  locker lockers[TEAM];
  tide__pinned_range* const range = range_new(m, PIECES * PIECE, PIECE);
  tide__pinned_range_ahead(range, 2);
  for (size_t i = 0; i < TEAM; ++i) {
    lockers[i] = (locker){ range, i + 1 };
    t_thread_start(&threads[i], lock_all, &lockers[i]);
  }
  for (size_t i = 0; i < TEAM; ++i) t_thread_join(threads[i]);

  T_EQ(tide_machine_call_stats(m, TIDE_CALL_PINNED_REGISTER).calls, PIECES);
  T_OK(tide__pinned_range_free(range));
  T_EQ(registered(m), 0);
}

MACHINE_TEST(test_pinned_range__helpers_lock_everything_ahead) {
  tide__pinned_range* const range = range_new(m, 16 * PIECE + 5, PIECE);

  tide__pinned_range_ahead(range, 0);
  tide__pinned_range_join(range);

  T_CHECK(tide__pinned_range_is_locked(range, 0, range->bytes));
  T_EQ(registered(m), 17);
  tide__pinned_range_ahead(range, 4);  // nothing is left to do
  tide__pinned_range_join(range);
  T_EQ(registered(m), 17);
  T_OK(tide__pinned_range_free(range));
}

MACHINE_TEST(test_pinned_range__can_be_freed_while_helpers_work) {
  for (size_t i = 0; i < 8; ++i) {
    tide__pinned_range* const range = range_new(m, 16 * PIECE, PIECE);
    tide__pinned_range_ahead(range, 3);
    if (i % 2 == 0) T_OK(tide__pinned_range_lock(range, i * PIECE, PIECE));
    T_OK(tide__pinned_range_free(range));
    T_EQ(registered(m), 0);
  }
}

// ---------------------------------------------------------------------------------------------------
// Refusals

EMULATED_TEST(test_pinned_range__says_that_locking_was_refused) {
  tide__pinned_range* const range = range_new(m, 4 * PIECE, PIECE);
  T_OK(tide__pinned_range_lock(range, 0, PIECE));
  break_calls(m, TIDE_CALL_PINNED_REGISTER, TIDE_ERR_NO_MEMORY, UINT64_MAX);

  T_STATUS(tide__pinned_range_lock(range, 0, 2 * PIECE), TIDE_ERR_NO_MEMORY);
  T_STR_HAS(tide_last_error()->text, "pinned_register");

  T_CHECK(tide__pinned_range_is_locked(range, 0, PIECE));
  T_CHECK(!tide__pinned_range_is_locked(range, PIECE, 1));
  if (machine_has_memory(m)) memset(range_at(range, 0), 1, 4 * PIECE);  // ordinary memory is left
  tide_machine_fault_clear(m);
  T_OK(tide__pinned_range_lock(range, 2 * PIECE, PIECE));
  T_OK(tide__pinned_range_free(range));
  T_EQ(registered(m), 0);
}

// Helpers end with the first refusal, and whoever needs the piece gets the error.
EMULATED_TEST(test_pinned_range__helpers_do_not_try_again_and_again) {
  tide__pinned_range* const range = range_new(m, 32 * PIECE, PIECE);
  break_calls(m, TIDE_CALL_PINNED_REGISTER, TIDE_ERR_MACHINE, UINT64_MAX);

  tide__pinned_range_ahead(range, 2);
  tide__pinned_range_join(range);

  T_LE(tide_machine_call_stats(m, TIDE_CALL_PINNED_REGISTER).calls, 2);
  T_STATUS(tide__pinned_range_lock(range, 0, PIECE), TIDE_ERR_MACHINE);
  tide_machine_fault_clear(m);
  tide__pinned_range_ahead(range, 2);
  T_OK(tide__pinned_range_lock(range, 0, range->bytes));
  T_OK(tide__pinned_range_free(range));
}

EMULATED_TEST(test_pinned_range__stays_if_the_machine_does_not_unlock_it) {
  tide__pinned_range* const range = range_new(m, 4 * PIECE, PIECE);
  T_OK(tide__pinned_range_lock(range, 0, 4 * PIECE));
  break_calls(m, TIDE_CALL_PINNED_UNREGISTER, TIDE_ERR_MACHINE, 1);

  T_STATUS(tide__pinned_range_free(range), TIDE_ERR_MACHINE);

  T_EQ(registered(m), 1);
  T_CHECK(tide__pinned_range_is_locked(range, 0, PIECE));
  T_OK(tide__pinned_range_free(range));
  T_EQ(registered(m), 0);
}

// Maps, locks ahead, copies and gives back, as long as calls succeed.
static tide_status use_range(tide_machine* m, uint8_t* there, tide_stream stream, const tide_heap* heap) {
  tide__pinned_range* range = NULL;
  tide_status status = tide__pinned_range_new(m, heap, 3 * PIECE, PIECE, &range);
  if (status != TIDE_OK) return status;
  tide__pinned_range_ahead(range, 1);
  for (uint64_t at = 0; at < 3 * PIECE && status == TIDE_OK; at += PIECE) {
    status = tide__pinned_range_lock(range, at, PIECE);
    if (status == TIDE_OK) status = tide_machine_copy(m, 0, stream, range_at(range, at), there, PIECE);
  }
  while (tide_machine_stream_synchronize(m, 0, stream) != TIDE_OK) {}
  while (tide__pinned_range_free(range) != TIDE_OK) {}
  return status;
}

EMULATED_TEST(test_pinned_range__a_fault_at_any_call_leaves_nothing) {
  uint8_t* const there = raw_new(m, 0, PIECE);
  const tide_stream stream = side_new(m);
  uint64_t calls = tide_machine_call_stats(m, TIDE_CALL_ANY).calls;
  T_OK(use_range(m, there, stream, NULL));
  calls = tide_machine_call_stats(m, TIDE_CALL_ANY).calls - calls;
  const size_t mappings = t_count_mappings();
  for (uint64_t i = 0; i < calls; ++i) {
    tide_fault fault = TIDE_FAULT_INIT;
    fault.status = i % 2 == 0 ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE;
    fault.skip = i;
    T_OK(tide_machine_fault_add(m, &fault));
    T_ANY(use_range(m, there, stream, NULL));
    tide_machine_fault_clear(m);
    T_EQ(registered(m), 0);
  }
  if (!T_HAS_SANITIZER) T_LE(t_count_mappings(), mappings + 4);
  T_OK(use_range(m, there, stream, NULL));
}

EMULATED_TEST(test_pinned_range__a_heap_that_fails_leaves_nothing) {
  uint8_t* const there = raw_new(m, 0, PIECE);
  const tide_stream stream = side_new(m);
  counting_heap records;
  size_t failures = 0;
  for (size_t at = 0;; ++at) {
    counting_heap_init(&records, at, true);
    const tide_status status = use_range(m, there, stream, &records.heap);
    T_EQ(atomic_load(&records.outstanding), 0);
    T_EQ(registered(m), 0);
    if (status == TIDE_OK) break;
    T_EQ(status, TIDE_ERR_NO_MEMORY);
    failures++;
  }
  T_EQ(failures, 2);
}

// Touching more memory than there is would kill the process. So nothing is mapped.
REAL_TEST(test_pinned_range__more_than_the_computer_has_is_refused) {
  const uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  const uint64_t sizes[] = { 2 * all, (uint64_t)1 << 50, UINT64_MAX, 0 };
  for (size_t i = 0; i < 4; ++i) {
    tide__pinned_range* range = (tide__pinned_range*)(uintptr_t)8;
    T_STATUS(tide__pinned_range_new(m, NULL, sizes[i], 0, &range), TIDE_ERR_NO_MEMORY);
    T_PTR_EQ(range, NULL);
  }
}

static void nothing_free(void* self) { (void)self; }

static tide_status nothing_info(void* self, int device, tide_device_info* out) {
  (void)self, (void)device, (void)out;
  return TIDE_OK;
}

T_TEST(test_pinned_range__needs_a_machine_that_can_register) {
  const tide_machine_ops ops = { .size = sizeof ops,
                                 .version = TIDE_MACHINE_OPS_VERSION,
                                 .name = "nothing",
                                 .free = nothing_free,
                                 .device_info = nothing_info };
  tide_machine* m = NULL;
  tide__pinned_range* range = NULL;
  int self = 0;
  T_OK(tide_machine_new(&ops, &self, 1, NULL, &m));
  T_CHECK(!tide__pages_can_lock(m));
  T_STATUS(tide__pinned_range_new(m, NULL, MIB, 0, &range), TIDE_ERR_UNSUPPORTED);
  tide_machine_free(m);
}

// ---------------------------------------------------------------------------------------------------
// Pages

// How many KiB of huge pages the mapping at an address has.
static uint64_t huge_kib(const void* address) {
  FILE* const file = fopen("/proc/self/smaps", "r");
  char line[512];
  uint64_t kib = 0;
  bool is_here = false;
  T_CHECK(file != NULL);
  while (fgets(line, sizeof line, file) != NULL) {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t value = 0;
    const bool is_head = sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2;
    if (is_head) is_here = begin <= (uintptr_t)address && (uintptr_t)address < end;
    if (is_here && sscanf(line, "AnonHugePages: %" SCNu64, &value) == 1) kib = value;
  }
  (void)fclose(file);
  return kib;
}

static bool system_has_huge_pages(void) {
  char text[64] = "";
  FILE* const file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
  if (file == NULL) return false;
  const bool is_read = fgets(text, sizeof text, file) != NULL;
  (void)fclose(file);
  return is_read && strstr(text, "[never]") == NULL;
}

REAL_TEST(test_pinned_range__has_huge_pages_where_the_system_lets_it) {
  if (!system_has_huge_pages()) t_skip("the system has no transparent huge pages");
  tide__pinned_range* const range = range_new(m, 16 * MIB, 8 * MIB);

  T_OK(tide__pinned_range_lock(range, 0, 16 * MIB));

  if (huge_kib(range_at(range, 0)) == 0) t_skip("the system found no huge page");
  T_LE(huge_kib(range_at(range, 0)), 16 * KIB);
  T_OK(tide__pinned_range_free(range));
}

// A child would otherwise get a copy of all locked pages, or share pages that the device writes.
REAL_TEST(test_pinned_range__children_do_not_get_the_pages) {
  tide__pinned_range* const range = range_new(m, 4 * MIB, 0);
  T_OK(tide__pinned_range_lock(range, 0, 4 * MIB));
  const pid_t child = fork();
  T_LE(0, child);
  if (child == 0) _exit(tide__sys_is_mapped(range->address, 4 * MIB) ? 1 : 0);
  int status = 0;
  T_EQ(waitpid(child, &status, 0), child);
  T_CHECK(WIFEXITED(status));
  T_EQ(WEXITSTATUS(status), 0);
  T_OK(tide__pinned_range_free(range));
}
