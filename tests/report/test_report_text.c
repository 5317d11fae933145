// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Statistics as text, call stacks, snapshots by one call, and traces in files that are named by a path.
#include "t.h"
#include "tidemark/format.h"
#include "tidemark/report.h"

#define MIB ((size_t)1 << 20)

typedef struct text_sink {
  char text[8192];
  size_t bytes;
  size_t room;  // bytes accepted before the sink fails
} text_sink;

static tide_status text_write(void* user, const void* data, size_t bytes) {
  text_sink* const t = user;
  if (t->bytes + bytes > t->room) return TIDE_ERR_LIMIT;
  memcpy(t->text + t->bytes, data, bytes);
  t->bytes += bytes;
  t->text[t->bytes] = '\0';
  return TIDE_OK;
}

static tide_machine* machine_new(void) {
  tide_host_options options = TIDE_HOST_OPTIONS_INIT;
  tide_machine* machine = NULL;
  options.capacity = 64 * MIB;
  T_OK(tide_machine_new_host(&options, &machine));
  return machine;
}

static const char* path_of(const char* name) {
  static char path[512];
  const char* const folder = getenv("TMPDIR");
  (void)snprintf(path, sizeof path, "%s/tide_%d_%s", folder != NULL ? folder : "/tmp", (int)getpid(), name);
  return path;
}

// ---------------------------------------------------------------------------------------------------
// Statistics

T_TEST(test_report__statistics_of_a_device_name_every_figure) {
  tide_machine* const machine = machine_new();
  tide_device_cache* device = NULL;
  tide_block block;
  text_sink t = { .room = sizeof t.text - 1 };
  const tide_sink sink = { text_write, &t };
  T_OK(tide_device_new(machine, 0, NULL, &device));
  T_OK(tide_device_alloc(device, NULL, 3 * MIB, &block));

  T_OK(tide_device_print_stats(device, &sink));

  T_STR_HAS(t.text, "device 0 of the machine host, policy torch\n");
  T_STR_HAS(t.text, "allocated_bytes                3.00 MiB       3.00 MiB       3.00 MiB        0 bytes\n");
#define HAS(name) T_STR_HAS(t.text, #name);
  TIDE_DEVICE_STAT_MAP(HAS)
  TIDE_DEVICE_COUNTER_MAP(HAS)
#undef HAS
  tide_device_free(device);
  tide_machine_free(machine);
}

T_TEST(test_report__statistics_of_pinned_and_cpu_memory_name_every_figure) {
  tide_machine* const machine = machine_new();
  tide_pinned_cache* pinned = NULL;
  tide_cpu_cache* cpu = NULL;
  text_sink t = { .room = sizeof t.text - 1 };
  const tide_sink sink = { text_write, &t };
  T_OK(tide_pinned_new(machine, NULL, &pinned));
  T_OK(tide_cpu_new(NULL, &cpu));

  T_OK(tide_pinned_print_stats(pinned, &sink));
  T_OK(tide_cpu_print_stats(cpu, &sink));

#define HAS(name) T_STR_HAS(t.text, "\n" #name " ");
  TIDE_PINNED_STAT_MAP(HAS)
  TIDE_PINNED_COUNTER_MAP(HAS)
  TIDE_CPU_COUNTER_MAP(HAS)
#undef HAS
  tide_cpu_free(cpu, NULL);
  tide_pinned_free(pinned, NULL);
  tide_machine_free(machine);
}

T_TEST(test_report__says_why_pinned_pages_are_not_registered) {
  tide_machine* const machine = machine_new();
  tide_pinned_cache* pinned = NULL;
  tide_block block;
  text_sink t = { .room = sizeof t.text - 1 };
  const tide_sink sink = { text_write, &t };
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = TIDE_CALL_PINNED_REGISTER;
  T_OK(tide_machine_fault_add(machine, &fault));
  T_OK(tide_pinned_new(machine, NULL, &pinned));
  T_OK(tide_pinned_alloc(pinned, (size_t)4 << 20, &block));

  T_OK(tide_pinned_print_stats(pinned, &sink));

  T_STR_HAS(t.text, "\npages are not registered: pinned_register: ");
  tide_pinned_free(pinned, NULL);
  tide_machine_free(machine);
}

T_TEST(test_report__a_sink_that_fails_ends_the_text) {
  tide_cpu_cache* cpu = NULL;
  T_OK(tide_cpu_new(NULL, &cpu));
  for (size_t room = 0; room < 400; room += 7) {
    text_sink t = { .room = room };
    const tide_sink sink = { text_write, &t };
    T_STATUS(tide_cpu_print_stats(cpu, &sink), TIDE_ERR_LIMIT);
  }
  T_STATUS(tide_cpu_print_stats(cpu, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_print_stats(NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_print_stats(NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_print_stats(NULL, NULL), TIDE_ERR_ARGUMENT);
  tide_cpu_free(cpu, NULL);
}

// ---------------------------------------------------------------------------------------------------
// Stacks

__attribute__((noinline)) static size_t stack_here(uint64_t* frames, size_t capacity) {
  return tide_stack_gather(NULL, frames, capacity);
}

// Is the frame in stack_here()?
static bool is_here(uint64_t frame) {
  const uint64_t here = (uint64_t)(uintptr_t)&stack_here;
  return frame > here && frame - here < 4096;
}

T_TEST(test_report__a_stack_begins_with_the_caller_and_is_cut_to_the_room) {
  uint64_t frames[64] = { 0 };
  uint64_t two[3] = { 0, 0, 77 };
  const size_t count = stack_here(frames, 64);
#if defined(__GLIBC__)
  T_LE(3, count);
  // The interceptor of a sanitizer is a frame of its own.
  T_CHECK(is_here(frames[0]) || (T_HAS_SANITIZER && is_here(frames[1])));
  T_EQ(stack_here(two, 2), 2);
#else
  T_EQ(count, 0);
#endif
  T_EQ(two[2], 77);
  T_EQ(tide_stack_gather(NULL, NULL, 5), 0);
}

T_TEST(test_report__frames_are_named_by_symbol_or_by_file_and_offset) {
  tide_frame_words words = { "x", "x", 1 };
  // Inside a function of the C library, which exports it.
  T_CHECK(tide_stack_describe(NULL, (uint64_t)(uintptr_t)&qsort + 2, &words));
  T_CHECK(words.name != NULL && words.file != NULL);
  T_CHECK(tide_stack_describe(NULL, (uint64_t)(uintptr_t)&stack_here + 2, &words));
  T_CHECK(words.name != NULL && strlen(words.name) > 0);
  T_CHECK(!tide_stack_describe(NULL, 0, &words));
  T_CHECK(!tide_stack_describe(NULL, 1, &words));
  T_CHECK(!tide_stack_describe(NULL, 1, NULL));
  T_CHECK(words.name == NULL);
}

// ---------------------------------------------------------------------------------------------------
// Snapshots and files

static tide_device_cache* recording_device(tide_machine* machine) {
  tide_device_cache* device = NULL;
  tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  tide_block block;
  history.level = TIDE_HISTORY_ALL;
  history.gather = tide_stack_gather;
  T_OK(tide_device_new(machine, 0, NULL, &device));
  T_OK(tide_device_history(device, &history));
  T_OK(tide_device_alloc(device, NULL, 3 * MIB, &block));
  return device;
}

T_TEST(test_report__a_snapshot_goes_to_a_file_of_each_readable_kind) {
  static const char* const names[] = { "s.pickle", "s.json", "s.tide" };
  tide_machine* const machine = machine_new();
  tide_device_cache* const device = recording_device(machine);
  for (size_t i = 0; i < 3; ++i) {
    const char* const path = path_of(names[i]);
    tide_trace* trace = NULL;
    size_t entries = 0;
    size_t blocks = 0;
    T_OK(tide_device_snapshot_to(device, path));
    T_OK(tide_trace_load(path, NULL, &trace));
    (void)unlink(path);
    const tide_trace_entry* const e = tide_trace_entries(trace, 0, &entries);
    (void)tide_trace_blocks(trace, &blocks);
    T_LE(2, entries);
    T_LE(1, blocks);
    T_EQ(e[0].action, TIDE_ACTION_SEGMENT_ALLOC);
    T_NE(e[1].stack, 0);
    tide_trace_free(trace);
  }
  tide_device_free(device);
  tide_machine_free(machine);
}

T_TEST(test_report__a_file_can_show_one_pool) {
  tide_machine* const machine = machine_new();
  tide_device_cache* const device = recording_device(machine);
  const char* const path = path_of("pool.pickle");
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  tide_pool pool = 0;
  tide_trace* trace = NULL;
  size_t count = 0;
  T_OK(tide_device_pool_new(device, &options, &pool));
  T_OK(tide_device_pool_snapshot_to(device, pool, path));
  T_OK(tide_trace_load(path, NULL, &trace));
  (void)tide_trace_segments(trace, &count);
  T_EQ(count, 0);
  tide_trace_free(trace);

  T_OK(tide_device_pool_snapshot_to(device, TIDE_POOL_DEFAULT, path));
  T_OK(tide_trace_load(path, NULL, &trace));
  (void)tide_trace_segments(trace, &count);
  T_EQ(count, 1);
  tide_trace_free(trace);
  (void)unlink(path);
  T_STATUS(tide_device_pool_snapshot_to(device, pool + 1, path), TIDE_ERR_HANDLE);
  T_EQ(access(path, F_OK), -1);
  tide_device_free(device);
  tide_machine_free(machine);
}

// How many items a list has that a file has beside those of the devices.
static size_t list_count(const tide_trace* trace, const char* key) {
  const tide_intern* const names = tide_trace_names(trace);
  const uint32_t extra = tide_trace_get_about(trace).extra;
  return tide_intern_value(names, tide_intern_value_find(names, extra, key)).count;
}

T_TEST(test_report__a_file_can_have_pinned_memory) {
  tide_machine* const machine = machine_new();
  tide_device_cache* const device = recording_device(machine);
  const char* const path = path_of("pinned.pickle");
  const tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  tide_pinned_cache* pinned = NULL;
  tide_trace* trace = NULL;
  tide_block block;
  size_t count = 0;
  T_OK(tide_pinned_new(machine, NULL, &pinned));
  T_OK(tide_pinned_history(pinned, &history));
  T_OK(tide_pinned_alloc(pinned, MIB, &block));
  T_OK(tide_pinned_release(pinned, block));

  T_OK(tide_device_pinned_snapshot_to(device, pinned, path));

  T_OK(tide_trace_load(path, NULL, &trace));
  (void)unlink(path);
  T_EQ(list_count(trace, "host_segments"), 1);
  T_EQ(list_count(trace, "host_traces"), 4);
  (void)tide_trace_segments(trace, &count);
  T_EQ(count, 1);
  tide_trace_free(trace);
  T_STATUS(tide_device_pinned_snapshot_to(device, NULL, path), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_pinned_snapshot_to(NULL, pinned, path), TIDE_ERR_ARGUMENT);
  tide_pinned_free(pinned, NULL);
  tide_device_free(device);
  tide_machine_free(machine);
}

T_TEST(test_report__files_that_cannot_be_used_are_named) {
  tide_machine* const machine = machine_new();
  tide_device_cache* const device = recording_device(machine);
  tide_trace* trace = NULL;
  T_STATUS(tide_device_snapshot_to(device, "/no/such/folder/x.json"), TIDE_ERR_STATE);
  T_STR_HAS(tide_last_error()->text, "/no/such/folder/x.json");
  T_EQ(tide_last_error()->native, ENOENT);
  T_STATUS(tide_device_snapshot_to(device, path_of("x.unknown")), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_snapshot_to(NULL, "x.json"), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_snapshot_to(device, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_load("/no/such/file", NULL, &trace), TIDE_ERR_STATE);
  T_STATUS(tide_trace_load("/", NULL, &trace), TIDE_ERR_STATE);  // a folder
  T_STATUS(tide_trace_load(NULL, NULL, &trace), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_save(NULL, "x.json"), TIDE_ERR_ARGUMENT);
  tide_device_free(device);
  tide_machine_free(machine);
}

T_TEST(test_report__the_longest_ending_names_the_format) {
  T_EQ(tide_format_from_path("a/run.json"), TIDE_FORMAT_JSON);
  T_EQ(tide_format_from_path("a/run.trace.json"), TIDE_FORMAT_CHROME);
  T_EQ(tide_format_from_path("run.csv"), TIDE_FORMAT_MINIMALLOC);
  T_EQ(tide_format_from_path("run.rmm.csv"), TIDE_FORMAT_RMM);
  T_EQ(tide_format_from_path("run"), -1);
  T_EQ(tide_format_from_path(".json"), -1);
  T_EQ(tide_format_from_path("a/.json"), -1);
  T_EQ(tide_format_from_path(""), -1);
  T_EQ(tide_format_from_path(NULL), -1);
}

T_TEST(test_report__a_descriptor_is_a_source_and_a_sink) {
  int ends[2];
  char got[8] = "";
  size_t bytes = 7;
  T_EQ(pipe(ends), 0);
  const tide_sink sink = tide_sink_file(ends[1]);
  const tide_source source = tide_source_file(ends[0]);
  T_OK(sink.write(sink.user, "tide", 4));
  T_EQ(close(ends[1]), 0);
  T_OK(source.read(source.user, got, sizeof got, &bytes));
  T_EQ(bytes, 4);
  T_STR_EQ(got, "tide");
  T_OK(source.read(source.user, got, sizeof got, &bytes));
  T_EQ(bytes, 0);  // the end
  T_EQ(close(ends[0]), 0);
  T_STATUS(sink.write(sink.user, "x", 1), TIDE_ERR_STATE);
  T_STATUS(source.read(source.user, got, 1, &bytes), TIDE_ERR_STATE);
  T_EQ(tide_last_error()->native, EBADF);
}
