// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Readers while threads make, use and free caches; and slots that are never seen half written.
#define T_THREADS
#include <sched.h>

#include "monitor/page.h"
#include "pages.h"

#define CREW 3

typedef struct crew {
  tide_machine* machine;
  atomic_bool is_over;
} crew;

static void cache_use(tide_machine* machine, size_t turn) {
  tide_block block;
  if (turn % 3 == 0) {
    tide_cpu_cache* cpu = NULL;
    void* tensor = NULL;
    T_OK(tide_cpu_new(NULL, &cpu));
    T_OK(tide_monitor_set_label(cpu, "of a thread"));
    T_OK(tide_cpu_alloc(cpu, 5000, &tensor));
    T_OK(tide_cpu_release(tensor));
    tide_cpu_free(cpu, NULL);
  } else if (turn % 3 == 1) {
    tide_pinned_cache* pinned = NULL;
    T_OK(tide_pinned_new(machine, NULL, &pinned));
    T_OK(tide_pinned_alloc(pinned, 5000, &block));
    T_OK(tide_pinned_release(pinned, block));
    tide_pinned_free(pinned, NULL);
  } else {
    tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
    options.policy = turn % 2 == 0 ? TIDE_POLICY_TIDE : TIDE_POLICY_TORCH;
    tide_device_cache* device = NULL;
    T_OK(tide_device_new(machine, 0, &options, &device));
    for (size_t i = 0; i < 50; i++) {
      T_OK(tide_device_alloc(device, NULL, (size_t)1000 << (i % 8), &block));
      T_OK(tide_device_release(device, block));
    }
    tide_device_free(device);
  }
}

static void* crew_work(void* user) {
  crew* const c = user;
  for (size_t turn = 0; !atomic_load(&c->is_over); turn++) cache_use(c->machine, turn);
  return NULL;
}

static void* crew_update(void* user) {
  const crew* const c = user;
  while (!atomic_load(&c->is_over)) T_OK(tide_monitor_update());
  return NULL;
}

static void sight_check(const sight* it) {
  const tide_monitor_row* const row = &it->row;
  if (row->kind == 0) return;
  T_LE(row->kind, TIDE_MONITOR_CPU);
  T_EQ(row->reserved_bytes.current, row->reserved_bytes.allocated - row->reserved_bytes.freed);
  T_LE(row->reserved_bytes.current, row->reserved_bytes.peak);
  T_CHECK(*row->label == '\0' || strcmp(row->label, "of a thread") == 0);
}

T_TEST(test_monitor_threads__caches_come_and_go) {
  crew c = { .machine = NULL };
  pthread_t threads[CREW + 1];
  folder_make();
  c.machine = dry_machine_new();
  T_OK(tide_monitor_open(folder));
  for (size_t i = 0; i < CREW; i++) T_EQ(pthread_create(&threads[i], NULL, crew_work, &c), 0);
  T_EQ(pthread_create(&threads[CREW], NULL, crew_update, &c), 0);
  const size_t rounds = t_scaled(200);
  size_t rows = 0;
  for (size_t i = 0; i < rounds || rows < 20; i++) {
    const sights* const seen = look();
    for (size_t k = 0; k < seen->count; k++) sight_check(&seen->all[k]);
    if (seen->all[0].row.kind != 0) rows += seen->count;
    char path[PATH_BYTES];
    T_LT(0, tide_monitor_path(path, sizeof path));
  }
  atomic_store(&c.is_over, true);
  for (size_t i = 0; i <= CREW; i++) T_EQ(pthread_join(threads[i], NULL), 0);
  T_OK(tide_monitor_update());
  T_EQ(look()->count, 1);
  T_EQ(look()->all[0].process.row_count, 0);
  tide_machine_free(c.machine);
  tide_monitor_close();
  folder_remove();
}

// ---------------------------------------------------------------------------------------------------
// Slots

#define SLOT_WORDS (sizeof(tide_monitor_row) / sizeof(uint64_t))

// Writes slots whose words are all equal, until it is killed.
static _Noreturn void slot_writer_run(int file) {
  uint64_t sequence = 0;
  uint64_t words[SLOT_WORDS];
  for (uint64_t value = 1;; value++) {
    for (size_t i = 0; i < SLOT_WORDS; i++) words[i] = value;
    if (tide__slot_put(file, 512, &sequence, words, sizeof words) != 0) _exit(1);
    (void)sched_yield();
  }
}

T_TEST(test_monitor_threads__no_slot_is_seen_half_written) {
  folder_make();
  char path[PATH_BYTES * 2];
  uint64_t last = 0;
  size_t changes = 0;
  uint64_t words[SLOT_WORDS];
  (void)snprintf(path, sizeof path, "%s/slot", folder);
  const int file = open(path, O_CREAT | O_RDWR, 0600);
  T_LE(0, file);
  T_EQ(ftruncate(file, 4096), 0);
  const pid_t writer = fork();
  T_LE(0, writer);
  if (writer == 0) slot_writer_run(file);
  while (changes < t_scaled(200)) {
    const int error = tide__slot_get(file, 512, words, sizeof words);
    if (error == EBUSY) continue;  // a busy computer stopped the writer in the middle
    T_EQ(error, 0);
    for (size_t i = 1; i < SLOT_WORDS; i++) T_EQ(words[i], words[0]);
    T_LE(last, words[0]);
    if (words[0] != last) changes++;
    last = words[0];
  }
  T_EQ(kill(writer, SIGKILL), 0);
  T_EQ(waitpid(writer, NULL, 0), writer);
  T_EQ(close(file), 0);
  folder_remove();
}

// A writer that was stopped in the middle does not stop a reader for ever.
T_TEST(test_monitor_threads__a_slot_that_stays_half_written) {
  folder_make();
  char path[PATH_BYTES * 2];
  const uint64_t odd = 7;
  uint64_t words[4];
  (void)snprintf(path, sizeof path, "%s/slot", folder);
  const int file = open(path, O_CREAT | O_RDWR, 0600);
  T_EQ(ftruncate(file, 4096), 0);
  T_EQ(pwrite(file, &odd, sizeof odd, 0), (ssize_t)sizeof odd);
  T_EQ(tide__slot_get(file, 0, words, sizeof words), EBUSY);
  uint64_t sequence = odd;
  T_EQ(tide__slot_put(file, 0, &sequence, words, sizeof words), 0);  // the writer goes on
  T_EQ(sequence, 8);
  T_EQ(tide__slot_get(file, 0, words, sizeof words), 0);
  T_EQ(tide__slot_get(file, 4090, words, sizeof words), ENODATA);
  T_EQ(close(file), 0);
  folder_remove();
}
