// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The CPU cache under the workload of tensors (tensors.c), beside the C library, a toy cache and a static
// plan. Every sample is a process, and the allocators take turns, so that all run under the same conditions.
// `scripts/bench-cpu` makes the same samples of preloaded allocators.
#include "bench.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensors.h"

extern char** environ;

// ---------------------------------------------------------------------------------------------------
// One sample as a program

enum { RESULT_FIELDS = 10 };

static void result_fields(tensors_result* result, double* out[RESULT_FIELDS]) {
  double* const fields[RESULT_FIELDS] = { &result->ns,
                                          &result->processor_ns,
                                          &result->faults,
                                          &result->peak_rss_mib,
                                          &result->peak_live_mib,
                                          &result->others,
                                          &result->growth,
                                          &result->loss,
                                          &result->processor_growth,
                                          &result->processor_loss };
  memcpy(out, fields, sizeof fields);
}

static void result_write(tensors_result* result, FILE* file) {
  double* fields[RESULT_FIELDS];
  result_fields(result, fields);
  for (size_t i = 0; i < RESULT_FIELDS; i++)
    (void)fprintf(file, "%.6g%c", *fields[i], i + 1 < RESULT_FIELDS ? ' ' : '\n');
}

static bool result_read(FILE* file, tensors_result* out) {
  char line[256];
  double* fields[RESULT_FIELDS];
  result_fields(out, fields);
  char* text = fgets(line, sizeof line, file);
  if (text == NULL) return false;
  for (size_t i = 0; i < RESULT_FIELDS; i++) {
    char* end = NULL;
    *fields[i] = strtod(text, &end);
    if (end == text) return false;
    text = end;
  }
  return true;
}

static int sample_usage(void) {
  const tensors_cell* cell = NULL;
  (void)fprintf(stderr, "usage: tidemark_bench --sample CELL ALLOCATOR SECONDS\ncells:");
  for (size_t i = 0; (cell = tensors_cell_at(i)) != NULL; i++) (void)fprintf(stderr, " %s", cell->name);
  (void)fprintf(stderr, "\nallocators:");
  for (size_t i = 0; i < TENSORS_ALLOCATORS; i++)
    (void)fprintf(stderr, " %s", tensors_allocator_name((tensors_allocator)i));
  (void)fprintf(stderr,
                "\nwrites: ns, processor ns and page faults of an operation; peak MiB of the process and\n"
                "live; the part of the computer others had; growth and loss of two threads, and the same\n"
                "by the processor\n");
  return 2;
}

int tensors_sample_main(int argc, char** argv) {
  tensors_allocator allocator = TENSORS_LIBC;
  const tensors_cell* const cell = argc == 3 ? tensors_cell_find(argv[0]) : NULL;
  const double seconds = argc == 3 ? strtod(argv[2], NULL) : 0;
  if (cell == NULL || seconds <= 0 || !tensors_allocator_find(argv[1], &allocator)) return sample_usage();
  if (!tensors_allocator_can(allocator, cell)) {
    (void)fprintf(stderr, "tidemark_bench: %s cannot do %s\n", argv[1], argv[0]);
    return 2;
  }
  tensors_result result = tensors_measure(cell, allocator, seconds);
  result_write(&result, stdout);
  return 0;
}

// ---------------------------------------------------------------------------------------------------
// Many samples

// The values of one cell, by allocator and sample.
typedef struct tensors_values {
  double ns[TENSORS_ALLOCATORS][BENCH_RUNS];
  double processor_ns[TENSORS_ALLOCATORS][BENCH_RUNS];
  double faults[TENSORS_ALLOCATORS][BENCH_RUNS];
  double residence[TENSORS_ALLOCATORS][BENCH_RUNS];  // peak memory of the process by peak live
  double hindrance[TENSORS_ALLOCATORS][BENCH_RUNS];  // growth by loss
} tensors_values;

// Starts this program again, to write one sample into a pipe.
static FILE* sample_start(const char* cell, const char* allocator, pid_t* out_pid) {
  char program[1024];
  char arguments[4][32] = { "--sample", "", "", "0.2" };
  char* argv[] = { program, arguments[0], arguments[1], arguments[2], arguments[3], NULL };
  int ends[2];
  posix_spawn_file_actions_t actions;
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  bench_verify(length > 0, "readlink of this program");
  program[length] = '\0';
  (void)snprintf(arguments[1], sizeof arguments[1], "%s", cell);
  (void)snprintf(arguments[2], sizeof arguments[2], "%s", allocator);
  bench_verify(pipe(ends) == 0 && posix_spawn_file_actions_init(&actions) == 0, "pipe");
  (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  (void)posix_spawn_file_actions_addclose(&actions, ends[0]);
  (void)posix_spawn_file_actions_addclose(&actions, ends[1]);
  bench_verify(posix_spawn(out_pid, program, &actions, NULL, argv, environ) == 0, "posix_spawn");
  (void)posix_spawn_file_actions_destroy(&actions);
  (void)close(ends[1]);
  return fdopen(ends[0], "r");
}

static tensors_result sample_of(const tensors_cell* cell, tensors_allocator allocator) {
  tensors_result result = { 0 };
  int status = 0;
  pid_t pid = 0;
  FILE* const file = sample_start(cell->name, tensors_allocator_name(allocator), &pid);
  const bool is_read = file != NULL && result_read(file, &result);
  if (file != NULL) (void)fclose(file);
  bench_verify(waitpid(pid, &status, 0) == pid && status == 0 && is_read, "a sample of tensors");
  return result;
}

static void values_set(tensors_values* values, size_t allocator, size_t i, const tensors_result* result) {
  values->ns[allocator][i] = result->ns;
  values->processor_ns[allocator][i] = result->processor_ns;
  values->faults[allocator][i] = result->faults;
  values->residence[allocator][i] = result->peak_rss_mib / result->peak_live_mib;
  values->hindrance[allocator][i] = result->loss > 0 ? result->growth / result->loss : 0;
}

static void tensors_row(bench* run, const tensors_cell* cell, size_t allocator, const char* what,
                        double* values, const char* unit) {
  char label[64];
  const bool is_ours = allocator == TENSORS_TIDE;
  (void)snprintf(label, sizeof label, "%s %s", cell->name, what);
  bench_row_peer(run, "tensors", label, is_ours ? NULL : tensors_allocator_name((tensors_allocator)allocator),
                 bench_median(values, BENCH_RUNS), unit);
}

static void tensors_rows(bench* run, const tensors_cell* cell, size_t allocator, tensors_values* values) {
  tensors_row(run, cell, allocator, "operation", values->ns[allocator], "ns");
  tensors_row(run, cell, allocator, "operation, processor", values->processor_ns[allocator], "ns");
  tensors_row(run, cell, allocator, "page faults", values->faults[allocator], "an operation");
  if (cell->is_touched && cell->high_bytes > 1 << 20)
    tensors_row(run, cell, allocator, "peak memory by peak live", values->residence[allocator], "x");
  if (cell->threads > 1 && !cell->is_touched)
    tensors_row(run, cell, allocator, "two threads, by what they lose apart", values->hindrance[allocator],
                "x");
}

void bench_tensors(bench* run) {
  static tensors_values values;
  const tensors_cell* cell = NULL;
  for (size_t c = 0; (cell = tensors_cell_at(c)) != NULL; c++) {
    for (size_t i = 0; i < BENCH_RUNS; i++)
      for (size_t allocator = 0; allocator < TENSORS_ALLOCATORS; allocator++) {
        if (!tensors_allocator_can((tensors_allocator)allocator, cell)) continue;
        const tensors_result result = sample_of(cell, (tensors_allocator)allocator);
        values_set(&values, allocator, i, &result);
      }
    for (size_t allocator = 0; allocator < TENSORS_ALLOCATORS; allocator++)
      if (tensors_allocator_can((tensors_allocator)allocator, cell))
        tensors_rows(run, cell, allocator, &values);
  }
}
