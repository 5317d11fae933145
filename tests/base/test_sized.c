// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Public structs that begin with their size, all of them, in every call that takes or fills one. Each is cut
// to every shorter size and placed before memory that cannot be touched, then made longer than the library
// knows. scripts/check-abi makes sure that a new struct gets a row here.
#include <sys/mman.h>

#include "base/error.h"
#include "base/sized.h"
#include "t.h"
#include "tidemark/tidemark.h"

#define MIB ((size_t)1 << 20)

// ---------------------------------------------------------------------------------------------------
// What the calls work on

typedef struct bytes_of_file {
  uint8_t bytes[4096];
  size_t count;
  size_t read;
} bytes_of_file;

static struct {
  tide_machine* machine;
  tide_device_cache* device;
  tide_block block;
  tide_pool pool;
  tide_checkpoint* checkpoint;
  tide_pinned_cache* pinned;
  tide_pool pinned_pool;
  tide_cpu_cache* cpu;
  tide_graph* graph;
  tide_planner* planner;
  tide_profile* profile;
  tide_trace* trace;
  tide_replay* replay;
  tide_quota* quota;
  bytes_of_file file;
} on;

static char quota_folder[] = "/tmp/tidemark-sized-XXXXXX";
static char quota_ledger[64];

static tide_status file_write(void* user, const void* data, size_t bytes) {
  bytes_of_file* const file = user;
  T_LE(file->count + bytes, sizeof file->bytes);
  memcpy(file->bytes + file->count, data, bytes);
  file->count += bytes;
  return TIDE_OK;
}

static tide_status file_read(void* user, void* out, size_t room, size_t* out_bytes) {
  bytes_of_file* const file = user;
  const size_t left = file->count - file->read;
  *out_bytes = left < room ? left : room;
  memcpy(out, file->bytes + file->read, *out_bytes);
  file->read += *out_bytes;
  return TIDE_OK;
}

static void caches_open(void) {
  tide_host_options options = TIDE_HOST_OPTIONS_INIT;
  options.capacity = 64 * MIB;
  T_OK(tide_machine_new_host(&options, &on.machine));
  T_OK(tide_device_new(on.machine, 0, NULL, &on.device));
  T_OK(tide_device_alloc(on.device, NULL, MIB, &on.block));
  T_OK(tide_device_pool_new(on.device, NULL, &on.pool));
  T_OK(tide_device_checkpoint(on.device, on.pool, &on.checkpoint));
  T_OK(tide_device_budget_set(on.device, "tag", NULL));
  T_OK(tide_pinned_new(on.machine, NULL, &on.pinned));
  T_OK(tide_pinned_pool_new(on.pinned, &on.pinned_pool));
  T_OK(tide_cpu_new(NULL, &on.cpu));
}

static void planners_open(void) {
  const tide_sink sink = { file_write, &on.file };
  T_OK(tide_graph_new(NULL, &on.graph));
  T_OK(tide_graph_seal(on.graph));
  T_OK(tide_planner_new(on.graph, NULL, &on.planner));
  T_OK(tide_profile_new(NULL, &on.profile));
  T_OK(tide_trace_new(NULL, &on.trace));
  T_OK(tide_device_snapshot(on.device, NULL, on.trace));
  T_OK(tide_trace_write(on.trace, TIDE_FORMAT_NATIVE, &sink));
  T_OK(tide_replay_new(on.trace, 0, NULL, &on.replay));
}

static void ledger_open(void) {
  tide_quota_options options = TIDE_QUOTA_OPTIONS_INIT;
  T_CHECK(mkdtemp(quota_folder) != NULL);
  (void)snprintf(quota_ledger, sizeof quota_ledger, "%s/ledger", quota_folder);
  options.ledger = quota_ledger;
  options.total_bytes = MIB;
  T_OK(tide_quota_join(&options, &on.quota));
}

static void all_close(void) {
  tide_quota_leave(on.quota);
  T_OK(tide_quota_remove(quota_ledger));
  T_EQ(rmdir(quota_folder), 0);
  tide_replay_free(on.replay);
  tide_trace_free(on.trace);
  tide_profile_free(on.profile);
  tide_planner_free(on.planner);
  tide_graph_free(on.graph);
  tide_cpu_free(on.cpu, NULL);
  tide_pinned_free(on.pinned, NULL);
  tide_checkpoint_free(on.checkpoint);
  tide_device_free(on.device);
  tide_machine_free(on.machine);
}

// ---------------------------------------------------------------------------------------------------
// The calls. Each leaves everything as it was.

// A call that makes a `type` from a struct.
#define MAKES(name, type, make, unmake) \
  static tide_status name(void* s) {    \
    type* made = NULL;                  \
    const tide_status status = (make);  \
    if (made != NULL) unmake;           \
    return status;                      \
  }

MAKES(host_options, tide_machine, tide_machine_new_host(s, &made), tide_machine_free(made))
MAKES(dry_options, tide_machine, tide_machine_new_dry(s, &made), tide_machine_free(made))
MAKES(cpu_options, tide_cpu_cache, tide_cpu_new(s, &made), tide_cpu_free(made, NULL))
MAKES(device_options, tide_device_cache, tide_device_new(on.machine, 0, s, &made), tide_device_free(made))
MAKES(pinned_options, tide_pinned_cache, tide_pinned_new(on.machine, s, &made), tide_pinned_free(made, NULL))
MAKES(profile_options, tide_profile, tide_profile_new(s, &made), tide_profile_free(made))
MAKES(graph_options, tide_planner, tide_planner_new(on.graph, s, &made), tide_planner_free(made))
MAKES(profile_plan_options, tide_profile_plan, tide_profile_plan_new(NULL, 0, s, &made),
      tide_profile_plan_free(made))
MAKES(layout_options, tide_graph_layout, tide_graph_layout_new(on.graph, s, NULL, 0, &made),
      tide_graph_layout_free(made))

MAKES(quota_options, tide_quota, tide_quota_join(s, &made), tide_quota_leave(made))

#define QUOTA_OPTIONS \
  { .size = sizeof(tide_quota_options), .ledger = quota_ledger, .limit_bytes = TIDE_NO_LIMIT }

static tide_status quota_shares(void* s) { return tide_quota_set_shares(quota_ledger, getpid(), s); }

static tide_status dry_costs(void* s) {
  tide_dry_options options = TIDE_DRY_OPTIONS_INIT;
  options.costs = s;
  return dry_options(&options);
}

// A computer without a driver refuses, but not the options.
static tide_status cuda_options(void* s) {
  tide_machine* made = NULL;
  const tide_status status = tide_machine_new_cuda(s, &made);
  tide_machine_free(made);
  return status == TIDE_ERR_UNSUPPORTED ? TIDE_OK : status;
}

static tide_status fault(void* s) {
  const tide_status status = tide_machine_fault_add(on.machine, s);
  tide_machine_fault_clear(on.machine);
  return status;
}

static tide_status device_configure(void* s) { return tide_device_configure(on.device, s); }
static tide_status device_parse(void* s) { return tide_device_options_parse("fixes:False", s); }

static tide_status device_print(void* s) {
  char text[8];
  T_EQ(tide_device_options_print(s, text, sizeof text), 0);
  return TIDE_OK;
}

static tide_status pinned_from_device(void* s) {
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  return tide_pinned_options_from_device(s, &options);
}

static tide_status pinned_to_options(void* s) {
  const tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  return tide_pinned_options_from_device(&options, s);
}

static tide_status pool_options(void* s) {
  tide_pool pool = 0;
  TIDE_TRY(tide_device_pool_new(on.device, s, &pool));
  return tide_device_pool_drop(on.device, pool);
}

static tide_status scope(void* s) {
  TIDE_TRY(tide_device_pool_begin(on.device, on.pool, s));
  T_OK(tide_device_pool_end(on.device, on.pool));
  return TIDE_OK;
}

static tide_status pinned_scope(void* s) {
  TIDE_TRY(tide_pinned_pool_begin(on.pinned, on.pinned_pool, s));
  T_OK(tide_pinned_pool_end(on.pinned, on.pinned_pool));
  return TIDE_OK;
}

// Makes a pool with the tag "tag", unless there is one.
static void need_tag(void) {
  tide_pool pool = 0;
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.tag = "tag";
  if (tide_device_tag_find(on.device, "tag", &pool) != TIDE_OK)
    T_OK(tide_device_pool_new(on.device, &options, &pool));
}

static tide_status tag_stats(void* s) {
  need_tag();
  return tide_device_tag_stats(on.device, "tag", s);
}

static tide_status park_options(void* s) {
  need_tag();
  return tide_device_prepare_backup(on.device, "tag", s);
}

static tide_status unpark_options(void* s) {
  need_tag();
  return tide_device_unpark(on.device, "tag", s, NULL);
}

static tide_status park_result(void* s) {
  need_tag();
  return tide_device_unpark(on.device, "tag", NULL, s);
}

static tide_status history_options(void* s) { return tide_device_history(on.device, s); }
static tide_status pinned_history_options(void* s) { return tide_pinned_history(on.pinned, s); }

static tide_status snapshot_options(void* s) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  const tide_status status = tide_device_snapshot(on.device, s, trace);
  tide_trace_free(trace);
  return status;
}

static tide_status pinned_snapshot_options(void* s) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  const tide_status status = tide_pinned_snapshot(on.pinned, s, 3, trace);
  tide_trace_free(trace);
  return status;
}

static tide_status read_options(void* s) {
  const tide_source source = { file_read, &on.file };
  tide_trace* trace = NULL;
  on.file.read = 0;
  const tide_status status = tide_trace_read(&source, s, &trace);
  tide_trace_free(trace);
  return status;
}

static tide_status plan_options(void* s) {
  const tide_plan_problem problem = { NULL, 0, NULL, 0 };
  tide_plan* plan = NULL;
  const tide_status status = tide_plan_solve(&problem, s, &plan);
  tide_plan_free(plan);
  return status;
}

static tide_status graph_node(void* s) {
  tide_graph* graph = NULL;
  uint32_t number = 0;
  T_OK(tide_graph_new(NULL, &graph));
  const tide_status status = tide_graph_add_node(graph, TIDE_GRAPH_ROOT, s, &number);
  tide_graph_free(graph);
  return status;
}

static tide_status replay_options(void* s) {
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  return tide_replay_run(on.replay, s, &result);
}

static tide_status steps_options(void* s) {
  tide_ledger* ledger = NULL;
  tide_steps* steps = NULL;
  TIDE_TRY(tide_ledger_new(on.trace, 0, &ledger));
  const tide_status status = tide_steps_find(on.trace, 0, ledger, s, &steps);
  tide_steps_free(steps);
  tide_ledger_free(ledger);
  return status;
}

static tide_status ledger_watcher(void* s) {
  tide_ledger* ledger = NULL;
  TIDE_TRY(tide_ledger_new(on.trace, 0, &ledger));
  const tide_status status = tide_ledger_watch(ledger, s);
  tide_ledger_free(ledger);
  return status;
}

static tide_status replay_result(void* s) { return tide_replay_run(on.replay, NULL, s); }
static tide_status device_info(void* s) { return tide_machine_device_info(on.machine, 0, s); }
static tide_status probe(void* s) { return tide_machine_probe(on.machine, 0, TIDE_FEATURE_RDMA, s); }
static tide_status pointer_info(void* s) { return tide_machine_pointer_info(on.machine, &on, s); }
static tide_status budget_set(void* s) { return tide_device_budget_set(on.device, "tag", s); }
static tide_status budget_get(void* s) { return tide_device_budget_get(on.device, "tag", s); }
static tide_status budget_stats(void* s) { return tide_device_budget_stats(on.device, "tag", s); }
static tide_status trace_tag(void* s) { return tide_trace_get_tag(on.trace, 0, s); }
static tide_status cpu_stats(void* s) { return tide_cpu_get_stats(on.cpu, s); }
static tide_status device_stats(void* s) { return tide_device_get_stats(on.device, s); }
static tide_status pinned_stats(void* s) { return tide_pinned_get_stats(on.pinned, s); }
static tide_status planner_stats(void* s) { return tide_planner_get_stats(on.planner, s); }
static tide_status profile_stats(void* s) { return tide_profile_get_stats(on.profile, s); }
static tide_status share(void* s) { return tide_device_share(on.device, on.block.address, s, NULL, 0); }

static tide_status plan_check(void* s) {
  const tide_plan_problem problem = { NULL, 0, NULL, 0 };
  return tide_plan_verify(&problem, NULL, NULL, NULL, s);
}

static tide_status profile_check(void* s) { return tide_profile_verify(NULL, 0, 0, NULL, s); }

static tide_status profile_report(void* s) {
  T_OK(tide_profile_begin(on.profile, TIDE_PROFILE_RECORD, 1));
  return tide_profile_end(on.profile, s);
}

static tide_status restore_delta(void* s) {
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
  const tide_status status = tide_device_restore(on.device, on.checkpoint, s);
  if (status != TIDE_OK) return status;
  memcpy(&delta, s, sizeof delta);
  tide_restore_delta_clear(&delta);
  return TIDE_OK;
}

static tide_status device_get_options(void* s) {
  tide_device_get_options(on.device, s);
  return TIDE_OK;
}

static tide_status pinned_get_options(void* s) {
  tide_pinned_get_options(on.pinned, s);
  return TIDE_OK;
}

static tide_status pinned_leaks(void* s) {
  tide_pinned_cache* pinned = NULL;
  T_OK(tide_pinned_new(on.machine, NULL, &pinned));
  tide_pinned_free(pinned, s);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The table

// What a call says about a struct that it cannot take.
typedef enum answer {
  REFUSES,  // TIDE_ERR_ARGUMENT
  IGNORES,  // nothing, and leaves the struct alone
} answer;

typedef struct sized_row {
  const char* name;
  tide_status (*call)(void* s);
  const void* defaults;
  uint32_t bytes;
  uint32_t least;  // of the sizes that are tried
  answer answer;
} sized_row;

#define DEFAULTS(type, ...) (&(const type)__VA_ARGS__), sizeof(type)
#define ROW(call, type, INIT) \
  { #call, call, DEFAULTS(type, INIT), 16, REFUSES }
#define ROW_WHOLE(call, type, INIT) \
  { #call, call, DEFAULTS(type, INIT), sizeof(type), REFUSES }
#define ROW_SILENT(call, type, INIT) \
  { #call, call, DEFAULTS(type, INIT), 16, IGNORES }

static const sized_row rows[] = {
  ROW(host_options, tide_host_options, TIDE_HOST_OPTIONS_INIT),
  ROW(dry_options, tide_dry_options, TIDE_DRY_OPTIONS_INIT),
  ROW(dry_costs, tide_dry_costs, TIDE_DRY_COSTS_INIT),
  ROW(cuda_options, tide_cuda_options, TIDE_CUDA_OPTIONS_INIT),
  ROW(fault, tide_fault, TIDE_FAULT_INIT),
  ROW(device_info, tide_device_info, TIDE_DEVICE_INFO_INIT),
  ROW(pointer_info, tide_pointer_info, TIDE_POINTER_INFO_INIT),
  ROW(probe, tide_probe, TIDE_PROBE_INIT),
  ROW(cpu_options, tide_cpu_options, TIDE_CPU_OPTIONS_INIT),
  ROW(cpu_stats, tide_cpu_stats, TIDE_CPU_STATS_INIT),
  ROW(device_options, tide_device_options, TIDE_DEVICE_OPTIONS_INIT),
  ROW(device_configure, tide_device_options, TIDE_DEVICE_OPTIONS_INIT),
  ROW(device_parse, tide_device_options, TIDE_DEVICE_OPTIONS_INIT),
  ROW_SILENT(device_print, tide_device_options, TIDE_DEVICE_OPTIONS_INIT),
  ROW_SILENT(device_get_options, tide_device_options, TIDE_DEVICE_OPTIONS_INIT),
  ROW(device_stats, tide_device_stats, TIDE_DEVICE_STATS_INIT),
  ROW(pool_options, tide_pool_options, TIDE_POOL_OPTIONS_INIT),
  ROW(scope, tide_scope, TIDE_SCOPE_INIT),
  ROW(tag_stats, tide_tag_stats, TIDE_TAG_STATS_INIT),
  ROW(budget_set, tide_budget, TIDE_BUDGET_INIT),
  ROW(budget_get, tide_budget, TIDE_BUDGET_INIT),
  ROW(budget_stats, tide_budget_stats, TIDE_BUDGET_STATS_INIT),
  ROW(trace_tag, tide_trace_tag, TIDE_TRACE_TAG_INIT),
  ROW(park_options, tide_park_options, TIDE_PARK_OPTIONS_INIT),
  ROW(unpark_options, tide_unpark_options, TIDE_UNPARK_OPTIONS_INIT),
  ROW(park_result, tide_park_result, TIDE_PARK_RESULT_INIT),
  ROW(history_options, tide_history_options, TIDE_HISTORY_OPTIONS_INIT),
  ROW(pinned_history_options, tide_history_options, TIDE_HISTORY_OPTIONS_INIT),
  ROW(snapshot_options, tide_snapshot_options, TIDE_SNAPSHOT_OPTIONS_INIT),
  ROW(pinned_snapshot_options, tide_snapshot_options, TIDE_SNAPSHOT_OPTIONS_INIT),
  ROW_WHOLE(restore_delta, tide_restore_delta, TIDE_RESTORE_DELTA_INIT),
  ROW(share, tide_share, TIDE_SHARE_INIT),
  ROW(pinned_options, tide_pinned_options, TIDE_PINNED_OPTIONS_INIT),
  ROW(pinned_from_device, tide_device_options, TIDE_DEVICE_OPTIONS_INIT),
  ROW(pinned_to_options, tide_pinned_options, TIDE_PINNED_OPTIONS_INIT),
  ROW_SILENT(pinned_get_options, tide_pinned_options, TIDE_PINNED_OPTIONS_INIT),
  ROW_SILENT(pinned_leaks, tide_pinned_leaks, TIDE_PINNED_LEAKS_INIT),
  ROW(pinned_scope, tide_pinned_scope, TIDE_PINNED_SCOPE_INIT),
  ROW(pinned_stats, tide_pinned_stats, TIDE_PINNED_STATS_INIT),
  ROW(quota_options, tide_quota_options, QUOTA_OPTIONS),
  ROW(quota_shares, tide_quota_shares, TIDE_QUOTA_SHARES_INIT),
  ROW(read_options, tide_read_options, TIDE_READ_OPTIONS_INIT),
  ROW(plan_options, tide_plan_options, TIDE_PLAN_OPTIONS_INIT),
  ROW(plan_check, tide_plan_check, TIDE_PLAN_CHECK_INIT),
  ROW(profile_check, tide_plan_check, TIDE_PLAN_CHECK_INIT),
  ROW(profile_plan_options, tide_profile_plan_options, TIDE_PROFILE_PLAN_OPTIONS_INIT),
  ROW(profile_options, tide_profile_options, TIDE_PROFILE_OPTIONS_INIT),
  ROW(profile_report, tide_profile_report, TIDE_PROFILE_REPORT_INIT),
  ROW(profile_stats, tide_profile_stats, TIDE_PROFILE_STATS_INIT),
  ROW(graph_options, tide_graph_options, TIDE_GRAPH_OPTIONS_INIT),
  ROW(layout_options, tide_graph_options, TIDE_GRAPH_OPTIONS_INIT),
  ROW(graph_node, tide_graph_node, TIDE_GRAPH_NODE_INIT),
  ROW(planner_stats, tide_planner_stats, TIDE_PLANNER_STATS_INIT),
  ROW(replay_options, tide_replay_options, TIDE_REPLAY_OPTIONS_INIT),
  ROW(steps_options, tide_steps_options, TIDE_STEPS_OPTIONS_INIT),
  ROW(ledger_watcher, tide_ledger_watcher, TIDE_LEDGER_WATCHER_INIT),
  ROW(replay_result, tide_replay_result, TIDE_REPLAY_RESULT_INIT),
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

// ---------------------------------------------------------------------------------------------------
// Memory that ends where a struct ends

typedef struct fenced {
  uint8_t* pages;
  size_t page;
} fenced;

static fenced fenced_new(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void* pages = NULL;
  T_EQ(posix_memalign(&pages, page, 2 * page), 0);
  T_EQ(mprotect((uint8_t*)pages + page, page, PROT_NONE), 0);
  return (fenced){ pages, page };
}

static void fenced_free(const fenced* f) {
  T_EQ(mprotect(f->pages + f->page, f->page, PROT_READ | PROT_WRITE), 0);
  free(f->pages);
}

// The first `bytes` bytes of the defaults, right before the fence, with the size that is asked for.
static void* fenced_put(const fenced* f, const sized_row* row, uint32_t bytes, uint32_t size) {
  uint8_t* const place = f->pages + f->page - bytes;
  T_LE(bytes, row->bytes);
  memcpy(place, row->defaults, bytes);
  memcpy(place, &size, sizeof size);
  return place;
}

static void expect(bool is_true, const sized_row* row, uint32_t size, const char* what) {
  if (!is_true)
    t_fail(__FILE__, __LINE__, "%s with size %u %s: %s", row->name, size, what, tide_last_error()->text);
}

static void expect_refused(const fenced* f, const sized_row* row, uint32_t size, const char* text) {
  uint8_t before[2048];
  uint8_t* const place = fenced_put(f, row, row->bytes, size);
  T_LE(row->bytes, sizeof before);
  memcpy(before, place, row->bytes);
  const tide_status status = row->call(place);
  const bool is_untouched = memcmp(before, place, row->bytes) == 0;
  if (row->answer == IGNORES) {
    expect(status == TIDE_OK && is_untouched, row, size, "is not left alone");
    return;
  }
  expect(status == TIDE_ERR_ARGUMENT, row, size, "is not refused");
  expect(strstr(tide_last_error()->text, text) != NULL, row, size, "is refused with another text");
  expect(is_untouched, row, size, "is refused and written");
}

// ---------------------------------------------------------------------------------------------------
// Tests

T_TEST(test_sized__shorter_structs_are_taken_and_nothing_behind_them_is_touched) {
  const fenced f = fenced_new();
  caches_open();
  planners_open();
  ledger_open();
  for (size_t i = 0; i < ROW_COUNT; ++i) {
    const sized_row* const row = &rows[i];
    for (uint32_t size = row->least; size <= row->bytes; size += 8) {
      uint32_t after = 0;
      void* const place = fenced_put(&f, row, size, size);
      expect(row->call(place) == TIDE_OK, row, size, "is refused");
      memcpy(&after, place, sizeof after);
      expect(after == size, row, size, "has another size afterwards");
    }
  }
  all_close();
  fenced_free(&f);
}

T_TEST(test_sized__longer_structs_are_refused_as_newer) {
  const fenced f = fenced_new();
  caches_open();
  planners_open();
  ledger_open();
  for (size_t i = 0; i < ROW_COUNT; ++i) {
    expect_refused(&f, &rows[i], rows[i].bytes + 4, "newer header");
    expect_refused(&f, &rows[i], rows[i].bytes + 8, "newer header");
    expect_refused(&f, &rows[i], UINT32_MAX, "newer header");
  }
  all_close();
  fenced_free(&f);
}

T_TEST(test_sized__structs_that_are_not_set_up_are_refused) {
  static const uint32_t sizes[] = { 0, 1, 4, 8, 13, 18 };
  const fenced f = fenced_new();
  caches_open();
  planners_open();
  ledger_open();
  for (size_t i = 0; i < ROW_COUNT; ++i) {
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; ++k)
      expect_refused(&f, &rows[i], sizes[k], "_INIT");
  }
  all_close();
  fenced_free(&f);
}

// A struct that came from an older header keeps what it says, and has the defaults of today for the rest.
T_TEST(test_sized__fields_that_are_missing_have_their_defaults) {
  tide_cpu_options theirs = TIDE_CPU_OPTIONS_INIT;
  tide_cpu_options own = TIDE_CPU_OPTIONS_INIT;
  memset((uint8_t*)&theirs + sizeof theirs.size, 0x55, sizeof theirs - sizeof theirs.size);
  theirs.size = offsetof(tide_cpu_options, max_block_bytes);
  theirs.max_cached_bytes = 77;

  T_OK(tide__sized_read("a test", &theirs, &own, sizeof own));

  T_EQ(own.size, sizeof own);
  T_EQ(own.max_cached_bytes, 77);
  T_EQ(own.max_block_bytes, TIDE_NO_LIMIT);
  T_EQ(own.idle_ns, 10000000000);
}
