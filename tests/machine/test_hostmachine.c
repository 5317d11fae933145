// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The host machine: its options, the resources it takes from the system, limits of the system, and memory
// that is freed while work uses it.
#define T_THREADS
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "machine/machines.h"

static tide_machine* host_new(uint32_t devices, uint64_t capacity, uint64_t unit) {
  tide_host_options options = TIDE_HOST_OPTIONS_INIT;
  options.device_count = devices;
  options.capacity = capacity;
  options.granularity = unit;
  tide_machine* m = NULL;
  T_OK(tide_machine_new_host(&options, &m));
  return m;
}

// ---------------------------------------------------------------------------------------------------
// Options

T_TEST(test_host__shares_half_of_the_memory_among_its_devices_by_default) {
  const uint64_t half = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
  tide_machine* one = NULL;
  T_OK(tide_machine_new_host(NULL, &one));
  tide_machine* const four = host_new(4, 0, 2 * MIB);

  T_EQ(tide_machine_device_count(one), 1);
  T_LE(device_info(one, 0).total_bytes, half);
  T_LE(half - 64 * MIB, device_info(one, 0).total_bytes);
  T_LE(4 * device_info(four, 3).total_bytes, device_info(one, 0).total_bytes);
  T_LE(device_info(one, 0).total_bytes, 4 * device_info(four, 3).total_bytes + 16 * MIB);

  tide_machine_free(one);
  tide_machine_free(four);
}

T_TEST(test_host__can_have_many_devices) {
  tide_machine* const m = host_new(TIDE_DEVICE_MAX, MIB, 64 * KIB);

  for (int device = 0; device < TIDE_DEVICE_MAX; ++device) {
    uint8_t* const raw = raw_new(m, device, 4096);
    T_OK(tide_machine_fill(m, device, NULL, raw, (uint8_t)device, 4096));
    T_OK(tide_machine_device_synchronize(m, device));
    T_FILLED(raw, (uint8_t)device, 4096);
  }

  T_OK(tide_machine_peer_enable(m, 63, 62));
  tide_machine_free(m);
}

T_TEST(test_host__can_have_a_small_granularity) {
  const size_t unit = (size_t)sysconf(_SC_PAGESIZE);
  tide_machine* const m = host_new(1, 64 * MIB, unit);
  uint8_t* const range = reserve(m, 0, 100 * unit);

  for (size_t i = 0; i < 100; ++i) map_new(m, 0, range + i * unit, unit);
  for (size_t i = 0; i < 100; ++i) memset(range + i * unit, (int)i, unit);

  for (size_t i = 0; i < 100; ++i) T_FILLED(range + i * unit, (uint8_t)i, unit);
  T_EQ(free_bytes(m, 0), 64 * MIB - 100 * unit);
  tide_machine_free(m);
}

T_TEST(test_host__refuses_options_out_of_range) {
  const tide_host_options good = TIDE_HOST_OPTIONS_INIT;
  tide_host_options bad[] = { good, good, good, good, good, good };
  bad[0].size = 0;
  bad[1].device_count = 0;
  bad[2].device_count = TIDE_DEVICE_MAX + 1;
  bad[3].granularity = 512;
  bad[4].granularity = 3 * MIB;
  bad[5].granularity = 0;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    tide_machine* m = (tide_machine*)(uintptr_t)1;

    T_STATUS(tide_machine_new_host(&bad[i], &m), TIDE_ERR_ARGUMENT);

    T_PTR_EQ(m, NULL);
  }
}

T_TEST(test_host__two_machines_do_not_share) {
  tide_machine* const a = host_new(1, 64 * MIB, 2 * MIB);
  tide_machine* const b = host_new(1, 64 * MIB, 2 * MIB);

  uint8_t* const raw = raw_new(a, 0, 32 * MIB);

  T_EQ(free_bytes(b, 0), 64 * MIB);
  T_EQ(pointer_info(b, raw).kind, TIDE_MEMORY_UNKNOWN);
  T_STATUS(tide_machine_raw_release(b, 0, raw), TIDE_ERR_ARGUMENT);
  tide_machine_free(a);
  tide_machine_free(b);
}

// ---------------------------------------------------------------------------------------------------
// Resources of the system

T_TEST(test_host__takes_nothing_before_it_is_needed) {
  const size_t threads = t_count_threads();
  const size_t descriptors = t_count_descriptors();

  tide_machine* const m = host_new(8, 0, 2 * MIB);

  T_EQ(t_count_threads(), threads);
  T_LE(t_count_descriptors(), descriptors + 1);
  tide_machine_free(m);
}

// Bytes in the memory files of this process.
static size_t file_bytes(void) {
  size_t bytes = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    char path[64];
    char name[64] = "";
    struct stat about;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, name, sizeof name - 1) <= 0 || strncmp(name, "/memfd:", 7) != 0) continue;
    if (fstat(fd, &about) == 0) bytes += (size_t)about.st_blocks * 512;
  }
  return bytes;
}

HOST_TEST(test_host__memory_goes_back_to_the_system) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, 16 * unit);
  for (int round = 0; round < 3; ++round) {
    uint8_t* const raw = raw_new(m, 0, 64 * MIB);
    memset(raw, 1, 64 * MIB);
    map_new(m, 0, range, 16 * unit);
    memset(range, 1, 16 * unit);

    T_OK(tide_machine_raw_release(m, 0, raw));
    T_OK(tide_machine_unmap(m, range, 16 * unit));

    T_LE(file_bytes(), 8 * MIB);
  }
}

HOST_TEST(test_host__fresh_memory_holds_nothing_old) {
  uint8_t* const raw = raw_new(m, 0, 8 * MIB);
  memset(raw, 0x5e, 8 * MIB);
  T_OK(tide_machine_raw_release(m, 0, raw));

  uint8_t* const next = raw_new(m, 0, 8 * MIB);

  T_FILLED(next, 0, 8 * MIB);
}

T_TEST(test_machine_free__waits_for_queued_work) {
  static atomic_int done;
  tide_machine* const m = machine_open("host", NULL);
  for (int i = 0; i < 3; ++i) {
    const tide_stream stream = stream_new(m, 0, 0);
    for (int k = 0; k < 100; ++k) {
      T_OK(tide_machine_call(m, 0, stream, call_slow, NULL));
      T_OK(tide_machine_call(m, 0, stream, call_count, &done));
    }
  }

  tide_machine_free(m);

  T_EQ(atomic_load(&done), 300);
}

T_TEST(test_machine_free__can_be_repeated_many_times) {
  const size_t descriptors = t_count_descriptors();
  for (size_t i = 0; i < t_scaled(50); ++i) {
    tide_machine* const m = machine_open("host", NULL);
    uint8_t* const raw = raw_new(m, 0, MIB);
    T_OK(tide_machine_fill(m, 0, TIDE_STREAM_PER_THREAD, raw, 1, MIB));
    T_OK(tide_machine_fill(m, 1, NULL, raw_new(m, 1, MIB), 1, MIB));
    tide_machine_free(m);
  }

  T_EQ(t_count_descriptors(), descriptors);
}

// ---------------------------------------------------------------------------------------------------
// Limits of the system

static void limit_set(int which, rlim_t soft_limit, struct rlimit* out_before) {
  T_EQ(getrlimit(which, out_before), 0);
  const struct rlimit now = { soft_limit < out_before->rlim_max ? soft_limit : out_before->rlim_max,
                              out_before->rlim_max };
  T_EQ(setrlimit(which, &now), 0);
}

HOST_TEST(test_host__without_descriptors_is_no_memory) {
  struct rlimit before;
  void* raw = &raw;
  limit_set(RLIMIT_NOFILE, 0, &before);

  const tide_status status = tide_machine_raw_alloc(m, 0, MIB, &raw);
  T_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);

  T_STATUS(status, TIDE_ERR_NO_MEMORY);
  T_PTR_EQ(raw, NULL);
  T_STR_HAS(tide_last_error()->text, "raw_alloc");
  T_LT(0, tide_last_error()->native);
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
  (void)raw_new(m, 0, MIB);
}

// Makes one call under a limit on the address space that leaves no room for it.
static tide_status call_without_addresses(tide_machine* m, const char* call) {
  void* memory = NULL;
  tide_stream stream = NULL;
  struct rlimit before;
  limit_set(RLIMIT_AS, MIB, &before);
  tide_status status = TIDE_OK;
  if (strcmp(call, "raw_alloc") == 0) status = tide_machine_raw_alloc(m, 0, 64 * MIB, &memory);
  if (strcmp(call, "pinned_alloc") == 0) status = tide_machine_pinned_alloc(m, 64 * MIB, &memory);
  if (strcmp(call, "address_reserve") == 0) {
    status = tide_machine_address_reserve(m, 0, 64 * MIB, 0, NULL, &memory);
  }
  if (strcmp(call, "stream_new") == 0) status = tide_machine_stream_new(m, 0, 0, 0, &stream);
  T_EQ(setrlimit(RLIMIT_AS, &before), 0);
  T_CHECK(memory == NULL && stream == NULL);
  return status;
}

HOST_TEST(test_host__without_addresses_is_no_memory) {
  static const char* const calls[] = { "raw_alloc", "pinned_alloc", "address_reserve", "stream_new" };
  if (T_HAS_SANITIZER) t_skip("a sanitizer needs the whole address space");
  (void)raw_new(m, 0, 4096);
  const size_t before = free_bytes(m, 0);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    T_STATUS(call_without_addresses(m, calls[i]), TIDE_ERR_NO_MEMORY);

    T_STR_HAS(tide_last_error()->text, calls[i]);
    T_EQ(free_bytes(m, 0), before);
  }
  (void)raw_new(m, 0, 64 * MIB);
  (void)stream_new(m, 0, 0);
}

T_TEST(test_host__small_blocks_until_something_is_full) {
  enum { MOST = 80000 };
  if (T_HAS_SANITIZER) t_skip("a sanitizer needs mappings of its own");
  tide_machine* const m = host_new(1, GIB, 2 * MIB);
  static uint8_t* blocks[MOST];
  size_t count = 0;
  void* block = NULL;
  while (count < MOST && tide_machine_raw_alloc(m, 0, 4096, &block) == TIDE_OK) blocks[count++] = block;

  if (count < MOST) T_EQ(tide_last_error()->status, TIDE_ERR_NO_MEMORY);
  for (size_t i = 0; i < count; ++i) T_OK(tide_machine_raw_release(m, 0, blocks[count - 1 - i]));

  T_EQ(free_bytes(m, 0), GIB);
  tide_machine_free(m);
}

HOST_TEST(test_host__pinned_memory_needs_no_right_to_lock) {
  struct rlimit before;
  limit_set(RLIMIT_MEMLOCK, 0, &before);

  uint8_t* const pinned = pinned_new(m, 8 * MIB);
  memset(pinned, 3, 8 * MIB);

  T_FILLED(pinned, 3, 8 * MIB);
  (void)device_info(m, 0);
  T_OK(tide_machine_pinned_release(m, pinned));
}

HOST_TEST(test_pinned_register__refuses_addresses_without_memory) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, unit);
  T_OK(tide_machine_address_release(m, range, unit));

  T_STATUS(tide_machine_pinned_register(m, range, unit), TIDE_ERR_ARGUMENT);

  T_EQ(pointer_info(m, range).kind, TIDE_MEMORY_UNKNOWN);
}

// ---------------------------------------------------------------------------------------------------
// Objects that are freed while they are used

HOST_TEST(test_raw_release__while_a_large_fill_runs_does_no_harm) {
  const tide_stream stream = stream_new(m, 0, 0);
  for (size_t i = 0; i < t_scaled(50); ++i) {
    uint8_t* const raw = raw_new(m, 0, 8 * MIB);
    T_OK(tide_machine_fill(m, 0, stream, raw, 1, 8 * MIB));
    T_OK(tide_machine_copy(m, 0, stream, raw, raw + 4 * MIB, 4 * MIB));

    T_OK(tide_machine_raw_release(m, 0, raw));

    const tide_status status = tide_machine_stream_synchronize(m, 0, stream);
    T_CHECK(status == TIDE_OK || status == TIDE_ERR_MACHINE);
  }
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
}

// Handles that one thread makes and frees while others use them.
typedef struct exchange {
  tide_machine* m;
  _Atomic(tide_stream) stream;
  _Atomic(tide_event) event;
  _Atomic(tide_launch) graph;
  _Atomic(tide_node) node;
  uint8_t* raw;
  atomic_bool is_over;
} exchange;

static void expect_known_or_stale(tide_status status) {
  T_CHECK(status == TIDE_OK || status == TIDE_ERR_HANDLE || status == TIDE_ERR_CAPTURE ||
          status == TIDE_ERR_ARGUMENT);
}

static void* thread_uses_handles(void* user) {
  exchange* const x = user;
  while (!atomic_load(&x->is_over)) {
    const tide_stream stream = atomic_load(&x->stream);
    const tide_event event = atomic_load(&x->event);
    bool is_true = false;
    size_t count = 0;
    expect_known_or_stale(tide_machine_fill(x->m, 0, stream, x->raw, 1, 64));
    expect_known_or_stale(tide_machine_event_record(x->m, 0, event, stream));
    expect_known_or_stale(tide_machine_stream_wait(x->m, 0, stream, event));
    expect_known_or_stale(tide_machine_event_query(x->m, event, &is_true));
    expect_known_or_stale(tide_machine_stream_query(x->m, 0, stream, &is_true));
    expect_known_or_stale(tide_machine_launch(x->m, 0, atomic_load(&x->graph), stream));
    expect_known_or_stale(tide_machine_node_dependencies(x->m, atomic_load(&x->node), NULL, 0, &count));
  }
  return NULL;
}

static void exchange_renew(exchange* x) {
  const tide_stream stream = stream_new(x->m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_stream captured = stream_new(x->m, 0, TIDE_STREAM_NON_BLOCKING);
  tide_launch graph = NULL;
  tide_node node = NULL;
  size_t count = 0;
  // A call that was under way with a handle freed meanwhile may break this capture, but nothing else.
  T_OK(tide_machine_capture_begin(x->m, 0, captured, TIDE_CAPTURE_RELAXED));
  T_ANY(tide_machine_fill(x->m, 0, captured, x->raw + 64, 1, 64));
  T_ANY(tide_machine_capture_terminals(x->m, 0, captured, &node, 1, &count));
  T_ANY(tide_machine_capture_end(x->m, 0, captured, &graph));
  T_OK(tide_machine_stream_free(x->m, 0, captured));
  const tide_stream old_stream = atomic_exchange(&x->stream, stream);
  const tide_event old_event = atomic_exchange(&x->event, event_new(x->m, 0));
  const tide_launch old_graph = atomic_exchange(&x->graph, graph);
  atomic_store(&x->node, node);
  if (old_stream != NULL) T_OK(tide_machine_stream_free(x->m, 0, old_stream));
  if (old_event != NULL) T_OK(tide_machine_event_free(x->m, old_event));
  if (old_graph != NULL) T_OK(tide_machine_launch_free(x->m, old_graph));
}

EMULATED_TEST(test_handles__that_another_thread_frees_are_stale_at_worst) {
  static exchange x;
  pthread_t threads[2];
  x.m = m;
  x.raw = raw_new(m, 0, 4096);
  exchange_renew(&x);

  for (size_t i = 0; i < 2; ++i) t_thread_start(&threads[i], thread_uses_handles, &x);
  for (size_t i = 0; i < t_scaled(300); ++i) exchange_renew(&x);
  atomic_store(&x.is_over, true);
  for (size_t i = 0; i < 2; ++i) t_thread_join(threads[i]);

  T_OK(tide_machine_device_synchronize(m, 0));
}

// How many KiB of this process are locked.
static long locked_kib(void) {
  long kib = -1;
  char line[128];
  FILE* const status = fopen("/proc/self/status", "r");
  T_CHECK(status != NULL);
  while (fgets(line, sizeof line, status) != NULL) (void)sscanf(line, "VmLck: %ld", &kib);
  (void)fclose(status);
  return kib;
}

HOST_TEST(test_pinned_unregister__keeps_a_page_locked_that_another_range_uses) {
  void* page = NULL;
  if (T_HAS_SANITIZER) t_skip("a sanitizer does not let pages be locked");
  T_EQ(posix_memalign(&page, 65536, 65536), 0);
  T_OK(tide_machine_pinned_register(m, page, 512));
  T_OK(tide_machine_pinned_register(m, (char*)page + 1024, 512));
  const long before = locked_kib();
  if (!device_info(m, 0).is_pinned_locked) t_skip("the system does not let us lock pages");

  T_OK(tide_machine_pinned_unregister(m, page));

  T_EQ(locked_kib(), before);
  T_OK(tide_machine_pinned_unregister(m, (char*)page + 1024));
  T_LT(locked_kib(), before);
  free(page);
}

HOST_TEST(test_physical_import__refuses_a_range_that_nobody_shares) {
  const size_t unit = granularity(m);
  tide_physical shared = NULL;
  tide_physical_share share = { -1, 0, 0 };
  tide_physical out = NULL;
  const tide_physical secret = physical_new(m, 0, unit);
  T_OK(tide_machine_physical_new(m, 0, unit, TIDE_PHYSICAL_SHAREABLE, &shared));
  T_OK(tide_machine_physical_export(m, shared, &share));

  share.offset -= unit;
  T_STATUS(tide_machine_physical_import(m, 0, &share, &out), TIDE_ERR_ARGUMENT);
  share.offset += unit;
  T_OK(tide_machine_physical_import(m, 0, &share, &out));

  (void)close(share.descriptor);
  T_OK(tide_machine_physical_free(m, secret));
}

// ---------------------------------------------------------------------------------------------------
// Addresses without memory

// A page with access, followed by one without.
static uint8_t* page_with_end(void) {
  uint8_t* memory = NULL;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  T_EQ(posix_memalign((void**)&memory, page, 2 * page), 0);
  T_EQ(mprotect(memory + page, page, PROT_NONE), 0);
  return memory;
}

// The work is skipped and reported once; later work runs.
static void expect_told_once(tide_machine* m, tide_stream stream, uint8_t* good) {
  T_STATUS(tide_machine_stream_synchronize(m, 0, stream), TIDE_ERR_MACHINE);
  T_CHECK(strstr(tide_last_error()->text, "not all memory of this process") != NULL);
  T_OK(tide_machine_fill(m, 0, stream, good, 9, 512));
  T_OK(tide_machine_stream_synchronize(m, 0, stream));
  T_FILLED(good, 9, 512);
}

HOST_TEST(test_host__work_at_an_address_of_nobody_is_an_error_of_the_next_synchronize) {
  const tide_stream stream = stream_new(m, 0, 0);
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uint8_t* const good = raw_new(m, 0, 64 * KIB);
  uint8_t* const edge = page_with_end();
  uint8_t* const nobody = edge + page;

  for (int i = 0; i < 6; ++i) {
    if (i == 0) T_OK(tide_machine_fill(m, 0, stream, nobody, 1, 4));
    if (i == 1) T_OK(tide_machine_fill(m, 0, stream, edge + page - 2, 1, 64 * KIB));
    if (i == 2) T_OK(tide_machine_copy(m, 0, stream, nobody, good, 4));
    if (i == 3) T_OK(tide_machine_copy(m, 0, stream, good, nobody, 64));
    if (i == 4) T_OK(tide_machine_copy(m, 0, stream, good, edge, 64 * KIB));
    if (i == 5) T_OK(tide_machine_copy(m, 0, stream, edge, nobody, 64));
    expect_told_once(m, stream, good);
  }

  T_EQ(mprotect(nobody, page, PROT_READ | PROT_WRITE), 0);
  free(edge);
}

HOST_TEST(test_host__memory_that_cannot_be_written_is_not) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const good = raw_new(m, 0, 64 * KIB);
  static const char text[] = "a constant of the program";

  T_OK(tide_machine_copy(m, 0, stream, good, text, sizeof text));
  T_OK(tide_machine_stream_synchronize(m, 0, stream));
  T_EQ(memcmp(good, text, sizeof text), 0);
  T_OK(tide_machine_fill(m, 0, stream, (void*)(uintptr_t)text, 0, sizeof text));
  expect_told_once(m, stream, good);
}
