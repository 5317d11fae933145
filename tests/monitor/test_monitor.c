// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Publishing and reading: another process sees what the statistics say, and processes that end vanish.
#define T_THREADS
#include "pages.h"

// ---------------------------------------------------------------------------------------------------
// A process that publishes

// What it says about itself through its socket. The first byte of the answer lets it go on.
typedef struct publication {
  tide_device_stats device;
  tide_pinned_stats pinned;
  tide_cpu_stats cpu;
} publication;

static void say(const char* argument, const publication* p) {
  char byte = 0;
  const int socket = atoi(argument);
  T_EQ(write(socket, p, sizeof *p), (ssize_t)sizeof *p);
  T_LE(0, read(socket, &byte, 1));  // until the test has looked
}

// TIDEMARK_MONITOR names the folder, and nothing else opens the page.
static void publish(const char* argument, const char* policy) {
  publication p = { TIDE_DEVICE_STATS_INIT, TIDE_PINNED_STATS_INIT, TIDE_CPU_STATS_INIT };
  tide_machine* const machine = dry_machine_new();
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.policy = strcmp(policy, "tide") == 0 ? TIDE_POLICY_TIDE : TIDE_POLICY_TORCH;
  tide_device_cache* device = NULL;
  tide_pinned_cache* pinned = NULL;
  tide_cpu_cache* cpu = NULL;
  T_OK(tide_device_new(machine, 0, &options, &device));
  T_OK(tide_pinned_new(machine, NULL, &pinned));
  T_OK(tide_cpu_new(NULL, &cpu));
  T_OK(tide_monitor_set_label(device, "rank \"7\"\\\n"));
  tide_block blocks[9];
  for (size_t i = 0; i < 9; i++) T_OK(tide_device_alloc(device, NULL, (i + 1) * 1000000 + 1, &blocks[i]));
  for (size_t i = 0; i < 4; i++) T_OK(tide_device_release(device, blocks[i * 2]));
  tide_block too_large = { NULL, 0 };
  T_STATUS(tide_device_alloc(device, NULL, (size_t)1 << 58, &too_large), TIDE_ERR_NO_MEMORY);
  T_OK(tide_device_set_limit(device, (uint64_t)1 << 33));
  T_OK(tide_pinned_alloc(pinned, 12345, &blocks[0]));
  void* tensor = NULL;
  T_OK(tide_cpu_alloc(cpu, 1 << 20, &tensor));
  T_OK(tide_monitor_update());
  T_OK(tide_device_get_stats(device, &p.device));
  T_OK(tide_pinned_get_stats(pinned, &p.pinned));
  T_OK(tide_cpu_get_stats(cpu, &p.cpu));
  say(argument, &p);
  T_OK(tide_cpu_release(tensor));
  tide_cpu_free(cpu, NULL);
  tide_pinned_free(pinned, NULL);
  tide_device_free(device);
  tide_machine_free(machine);
}

T_ROLE(publisher_torch) { publish(argument, "torch"); }
T_ROLE(publisher_tide) { publish(argument, "tide"); }

// A page of the program before exec() is left behind, with the same pid and start time.
T_ROLE(publisher_before_exec) {
  T_OK(tide_monitor_open(NULL));
  char program[] = "/proc/self/exe";
  char flag[] = "--role";
  char role[] = "publisher_torch";
  char socket[16];
  (void)snprintf(socket, sizeof socket, "%s", argument);
  char* const arguments[] = { program, flag, role, socket, NULL };
  (void)execv(program, arguments);
  T_FAIL("exec failed: %s", strerror(errno));
}

static publication hear(const t_process* p) {
  publication said;
  T_EQ(read(p->socket, &said, sizeof said), (ssize_t)sizeof said);
  return said;
}

static void device_row_expect(const tide_monitor_row* row, const tide_device_stats* want) {
  T_EQ(row->kind, TIDE_MONITOR_DEVICE);
  T_EQ(row->device, 0);
  T_STR_EQ(row->machine, "dry");
  stat_expect(row->reserved_bytes, want->reserved_bytes[TIDE_STAT_ALL]);
  stat_expect(row->active_bytes, want->active_bytes[TIDE_STAT_ALL]);
  stat_expect(row->allocated_bytes, want->allocated_bytes[TIDE_STAT_ALL]);
  stat_expect(row->requested_bytes, want->requested_bytes[TIDE_STAT_ALL]);
  T_EQ(row->num_blocks, 5);
  T_EQ(row->num_allocs, 9);
  T_EQ(row->num_ooms, 1);
  T_EQ(row->num_alloc_retries, want->num_alloc_retries);
  T_EQ(row->num_stream_waits, want->num_stream_waits);
  T_EQ(row->limit_bytes, (uint64_t)1 << 33);
  T_LT(0, row->total_bytes);
}

static void pinned_row_expect(const tide_monitor_row* row, const tide_pinned_stats* want) {
  T_EQ(row->device, -1);
  T_STR_EQ(row->policy, "");
  stat_expect(row->reserved_bytes, want->reserved_bytes);
  stat_expect(row->active_bytes, want->active_bytes);
  stat_expect(row->allocated_bytes, want->active_bytes);
  T_EQ(row->requested_bytes.current, 0);
  T_EQ(row->num_allocs, 1);
  T_EQ(row->num_blocks, 1);
}

static void cpu_row_expect(const tide_monitor_row* row, const tide_cpu_stats* want) {
  T_EQ(row->device, -1);
  T_STR_EQ(row->machine, "");
  stat_expect(row->reserved_bytes, want->reserved_bytes);
  stat_expect(row->active_bytes, want->active_bytes);
  T_EQ(row->num_allocs, 1);
  T_EQ(row->limit_bytes, TIDE_NO_LIMIT);
}

static const char* const policies[] = { "torch", "tide", NULL };

T_TEST_OVER(test_monitor__another_process_sees_the_statistics, policies) {
  folder_make();
  char role[32];
  (void)snprintf(role, sizeof role, "publisher_%s", t_variant());
  t_process child = t_process_new(role);
  const publication said = hear(&child);
  const sights* const seen = look();
  T_EQ(seen->count, 3);
  const sight* const device = sight_of_kind(seen, TIDE_MONITOR_DEVICE);
  T_EQ(device->process.pid, child.pid);
  T_CHECK(device->process.is_in_namespace);
  T_EQ(device->process.row_count, 3);
  T_EQ(device->process.left_out, 0);
  T_STR_EQ(device->process.version, tide_version());
  T_STR_EQ(device->row.policy, t_variant());
  T_STR_EQ(device->row.label, "rank \"7\"\\\n");
  T_LE(device->row.updated_ns, device->process.updated_ns);
  T_LT(device->process.opened_ns, device->process.updated_ns);
  device_row_expect(&device->row, &said.device);
  pinned_row_expect(&sight_of_kind(seen, TIDE_MONITOR_PINNED)->row, &said.pinned);
  cpu_row_expect(&sight_of_kind(seen, TIDE_MONITOR_CPU)->row, &said.cpu);
  t_process_end(&child);
  T_EQ(folder_count(NULL), 0);  // exit() removed the page
  folder_remove();
}

T_TEST(test_monitor__a_killed_process_vanishes) {
  folder_make();
  t_process one = t_process_new("publisher_torch");
  t_process other = t_process_new("publisher_torch");
  (void)hear(&one);
  (void)hear(&other);
  T_EQ(look()->count, 6);
  t_process_kill(&one);
  T_EQ(folder_count(NULL), 2);  // nobody has looked yet
  const sights* const seen = look();
  T_EQ(seen->count, 3);
  T_EQ(seen->all[0].process.pid, other.pid);
  T_EQ(folder_count(NULL), 1);
  t_process_end(&other);
  folder_remove();
}

T_TEST(test_monitor__exec_replaces_the_page) {
  folder_make();
  t_process child = t_process_new("publisher_before_exec");
  (void)hear(&child);
  T_EQ(look()->count, 3);
  T_EQ(folder_count(NULL), 1);
  t_process_end(&child);
  folder_remove();
}

T_TEST(test_monitor__processes_come_by_pid) {
  folder_make();
  t_process children[4];
  for (size_t i = 0; i < 4; i++) children[i] = t_process_new("publisher_torch");
  for (size_t i = 0; i < 4; i++) (void)hear(&children[i]);
  const sights* const seen = look();
  T_EQ(seen->count, 12);
  for (size_t i = 1; i < seen->count; i++) T_LE(seen->all[i - 1].process.pid, seen->all[i].process.pid);
  for (size_t i = 0; i < 4; i++) t_process_end(&children[i]);
  folder_remove();
}

// ---------------------------------------------------------------------------------------------------
// In one process

T_TEST(test_monitor__is_off_unless_it_is_asked_for) {
  static const char* const values[] = { NULL, "", "0" };
  folder_make();
  for (size_t i = 0; i < 3; i++) {
    if (values[i] != NULL) T_EQ(setenv("TIDEMARK_MONITOR", values[i], 1), 0);
    else T_EQ(unsetenv("TIDEMARK_MONITOR"), 0);
    const pid_t child = fork();  // the environment is read once in a process
    T_LE(0, child);
    if (child == 0) {
      char path[PATH_BYTES];
      tide_cpu_cache* cpu = NULL;
      T_OK(tide_cpu_new(NULL, &cpu));
      T_EQ(tide_monitor_path(path, sizeof path), 0);
      T_STATUS(tide_monitor_update(), TIDE_ERR_STATE);
      tide_cpu_free(cpu, NULL);
      _exit(0);
    }
    int status = 0;
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
  }
  T_EQ(look()->count, 0);
  folder_remove();
}

T_TEST(test_monitor__covers_caches_made_before_and_after) {
  folder_make();
  T_EQ(unsetenv("TIDEMARK_MONITOR"), 0);
  tide_cpu_cache* caches[3];
  T_OK(tide_cpu_new(NULL, &caches[0]));
  T_OK(tide_monitor_open(folder));
  T_OK(tide_monitor_open(folder));  // open already
  T_EQ(look()->count, 1);
  T_EQ(look()->all[0].row.serial, 1);
  T_OK(tide_cpu_new(NULL, &caches[1]));
  T_OK(tide_monitor_update());
  T_EQ(look()->count, 2);
  tide_cpu_free(caches[0], NULL);
  T_OK(tide_monitor_update());
  T_EQ(look()->count, 1);
  T_EQ(look()->all[0].row.serial, 2);
  tide_cpu_free(caches[1], NULL);
  T_OK(tide_monitor_update());
  T_EQ(look()->count, 1);  // the process itself
  T_EQ(look()->all[0].row.kind, 0);
  T_EQ(look()->all[0].process.row_count, 0);
  tide_monitor_close();
  tide_monitor_close();
  T_EQ(folder_count(NULL), 0);
  T_OK(tide_cpu_new(NULL, &caches[2]));
  T_OK(tide_monitor_open(folder));  // again
  T_EQ(look()->all[0].row.serial, 3);
  tide_cpu_free(caches[2], NULL);
  tide_monitor_close();
  folder_remove();
}

T_TEST(test_monitor__counts_caches_without_a_row) {
  enum { CACHES = TIDE_MONITOR_ROWS + 8 };
  folder_make();
  T_OK(tide_monitor_open(folder));
  tide_cpu_cache* caches[CACHES];
  for (size_t i = 0; i < CACHES; i++) T_OK(tide_cpu_new(NULL, &caches[i]));
  T_OK(tide_monitor_update());
  T_EQ(look()->count, TIDE_MONITOR_ROWS);
  T_EQ(look()->all[0].process.left_out, 8);
  for (size_t i = 0; i < 10; i++) tide_cpu_free(caches[i], NULL);
  T_OK(tide_monitor_update());
  T_EQ(look()->count, CACHES - 10);
  T_EQ(look()->all[0].process.left_out, 0);
  for (size_t i = 10; i < CACHES; i++) tide_cpu_free(caches[i], NULL);
  tide_monitor_close();
  folder_remove();
}

static bool has_points(uint32_t count) {
  const sights* const seen = look();
  return seen->count == 1 && seen->all[0].row.point_count >= count;
}

T_TEST(test_monitor__a_point_of_the_history_each_second) {
  folder_make();
  tide_cpu_cache* cpu = NULL;
  void* tensor = NULL;
  T_OK(tide_cpu_new(NULL, &cpu));
  for (size_t i = 0; i < 100; i++) T_OK(tide_monitor_update());
  T_LE(look()->all[0].row.point_count, 60);  // far fewer than updates
  const uint32_t before = look()->all[0].row.point_count;
  T_OK(tide_cpu_alloc(cpu, 3 << 20, &tensor));
  T_WAIT(has_points(before + 2));
  const tide_monitor_row* const row = &look()->all[0].row;
  T_EQ(row->points[0].allocated_bytes, 0);
  T_EQ(row->points[row->point_count - 1].allocated_bytes, 3 << 20);
  T_EQ(row->points[row->point_count - 1].reserved_bytes, (uint64_t)row->reserved_bytes.current);
  T_OK(tide_cpu_release(tensor));
  tide_cpu_free(cpu, NULL);
  tide_monitor_close();
  folder_remove();
}

T_TEST(test_monitor__labels) {
  char text[TIDE_MONITOR_LABEL + 1];
  tide_cpu_cache* cpu = NULL;
  folder_make();
  memset(text, 'x', sizeof text);
  text[TIDE_MONITOR_LABEL] = '\0';
  T_OK(tide_cpu_new(NULL, &cpu));
  T_STATUS(tide_monitor_set_label(cpu, text), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_monitor_set_label(NULL, "a"), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_monitor_set_label(text, "a"), TIDE_ERR_HANDLE);
  T_OK(tide_monitor_set_label(cpu, text + 1));
  T_OK(tide_monitor_update());
  T_STR_EQ(look()->all[0].row.label, text + 1);
  T_OK(tide_monitor_set_label(cpu, NULL));
  T_OK(tide_monitor_update());
  T_STR_EQ(look()->all[0].row.label, "");
  tide_cpu_free(cpu, NULL);
  T_STATUS(tide_monitor_set_label(cpu, "a"), TIDE_ERR_HANDLE);
  tide_monitor_close();
  folder_remove();
}

static bool stop_at_once(void* user, const tide_monitor_process* process, const tide_monitor_row* row) {
  (void)process;
  (void)row;
  ++*(size_t*)user;
  return false;
}

T_TEST(test_monitor__a_reader_may_stop) {
  folder_make();
  size_t calls = 0;
  tide_cpu_cache* caches[2];
  for (size_t i = 0; i < 2; i++) T_OK(tide_cpu_new(NULL, &caches[i]));
  T_OK(tide_monitor_update());
  T_OK(tide_monitor_read(NULL, stop_at_once, &calls));  // the environment names the folder
  T_EQ(calls, 1);
  T_STATUS(tide_monitor_read(folder, NULL, NULL), TIDE_ERR_ARGUMENT);
  for (size_t i = 0; i < 2; i++) tide_cpu_free(caches[i], NULL);
  tide_monitor_close();
  folder_remove();
}

T_TEST(test_monitor__names_of_kinds) {
  T_STR_EQ(tide_monitor_kind_name(TIDE_MONITOR_DEVICE), "device");
  T_STR_EQ(tide_monitor_kind_name(TIDE_MONITOR_PINNED), "pinned");
  T_STR_EQ(tide_monitor_kind_name(TIDE_MONITOR_CPU), "cpu");
  T_STR_EQ(tide_monitor_kind_name((tide_monitor_kind)0), "");
}

// ---------------------------------------------------------------------------------------------------
// Forks

// Runs `work` in a child, which must end well.
static void in_child(void (*work)(void)) {
  int status = 0;
  const pid_t child = fork();
  T_LE(0, child);
  if (child == 0) {
    (void)alarm(300);
    work();
    if (T_HAS_ADDRESS_SANITIZER) _exit(0);  // its search for leaks does not work in a child with threads
    exit(0);                                // with all handlers
  }
  T_EQ(waitpid(child, &status, 0), child);
  T_EQ(status, 0);
}

static void child_has_none(void) {
  char path[PATH_BYTES];
  T_EQ(tide_monitor_path(path, sizeof path), 0);
  T_STATUS(tide_monitor_update(), TIDE_ERR_STATE);
  tide_monitor_close();
}

static void child_opens_its_own(void) {
  tide_cpu_cache* cpu = NULL;
  T_OK(tide_cpu_new(NULL, &cpu));  // opens the page, as TIDEMARK_MONITOR is set
  T_OK(tide_monitor_update());
  const sights* const seen = look();
  size_t mine = 0;
  for (size_t i = 0; i < seen->count; i++) {
    if (seen->all[i].process.pid != getpid()) continue;
    mine++;
    T_EQ(seen->all[i].row.kind, TIDE_MONITOR_CPU);  // the parent's device cache is not shown
  }
  T_EQ(mine, 2);
  T_EQ(folder_count(NULL), 2);
  tide_cpu_free(cpu, NULL);
}

static void* update_often(void* user) {
  const atomic_bool* const is_over = user;
  while (!atomic_load(is_over)) T_OK(tide_monitor_update());
  return NULL;
}

T_TEST(test_monitor__a_child_of_fork_leaves_the_page_alone) {
  folder_make();
  pthread_t thread;
  atomic_bool is_over = false;
  tide_machine* const machine = dry_machine_new();
  tide_device_cache* device = NULL;
  tide_cpu_cache* cpu = NULL;
  T_OK(tide_device_new(machine, 0, NULL, &device));
  T_OK(tide_cpu_new(NULL, &cpu));
  T_EQ(pthread_create(&thread, NULL, update_often, &is_over), 0);  // so that forks meet the helper at work
  for (size_t i = 0; i < 20; i++) in_child(child_has_none);
  T_EQ(folder_count(NULL), 1);
  // The thread sanitizer lets no child of a process with threads start one.
  for (size_t i = 0; i < 5 && !T_HAS_THREAD_SANITIZER; i++) in_child(child_opens_its_own);
  atomic_store(&is_over, true);
  T_EQ(pthread_join(thread, NULL), 0);
  T_OK(tide_monitor_update());
  T_EQ(look()->count, 2);
  tide_cpu_free(cpu, NULL);
  tide_device_free(device);
  tide_machine_free(machine);
  tide_monitor_close();
  T_EQ(folder_count(NULL), 0);
  folder_remove();
}
