// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The benchmark program: tidemark_bench [NAME ...] [--json]. Prints a table for people, or one JSON object a
// line: first the computer, then the rows. With --sample it is one process of a benchmark (tensors.h).
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tensors.h"

struct bench {
  bool is_json;
};

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  (void)clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t bench_now(void) { return clock_ns(CLOCK_MONOTONIC); }
uint64_t bench_processor_now(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

static int double_compare(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

double bench_median(double* values, size_t count) {
  qsort(values, count, sizeof *values, double_compare);
  return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double job_run(const bench_job* job) {
  if (job->before != NULL) job->before(job->user);
  const uint64_t start = bench_now();
  job->work(job->user, job->count);
  const uint64_t end = bench_now();
  if (job->after != NULL) job->after(job->user);
  return (double)(end - start) / (double)job->count;
}

double bench_ns(const bench_job* job) {
  double values[BENCH_RUNS];
  (void)job_run(job);
  for (size_t i = 0; i < BENCH_RUNS; i++) values[i] = job_run(job);
  return bench_median(values, BENCH_RUNS);
}

typedef struct team_member {
  const bench_job* job;
  void* user;
  pthread_barrier_t* start;
  int repeats;
  uint64_t begin_ns;
  uint64_t end_ns;
} team_member;

static void* team_member_run(void* user) {
  team_member* const m = user;
  (void)pthread_barrier_wait(m->start);
  m->begin_ns = bench_now();
  for (int i = 0; i < m->repeats; i++) m->job->work(m->user, m->job->count);
  m->end_ns = bench_now();
  return NULL;
}

uint64_t bench_team_ns(const bench_job* job, void* const* users, size_t threads, int repeats) {
  pthread_t ids[BENCH_MAX_THREADS];
  team_member members[BENCH_MAX_THREADS];
  pthread_barrier_t start;
  uint64_t begin_ns = UINT64_MAX;
  uint64_t end_ns = 0;
  bench_verify(threads <= BENCH_MAX_THREADS, "threads of a team");
  (void)pthread_barrier_init(&start, NULL, (unsigned)threads);
  for (size_t i = 0; i < threads; i++) {
    members[i] = (team_member){ .job = job, .user = users[i], .start = &start, .repeats = repeats };
    bench_verify(pthread_create(&ids[i], NULL, team_member_run, &members[i]) == 0, "pthread_create");
  }
  for (size_t i = 0; i < threads; i++) {
    (void)pthread_join(ids[i], NULL);
    begin_ns = members[i].begin_ns < begin_ns ? members[i].begin_ns : begin_ns;
    end_ns = members[i].end_ns > end_ns ? members[i].end_ns : end_ns;
  }
  (void)pthread_barrier_destroy(&start);
  return end_ns - begin_ns;
}

void bench_require(tide_status status, const char* what) {
  if (status == TIDE_OK) return;
  (void)fprintf(stderr, "tidemark_bench: %s: %s: %s\n", what, tide_status_name(status),
                tide_last_error()->text);
  exit(1);
}

void* bench_alloc(size_t count, size_t bytes) {
  void* const memory = calloc(count, bytes);
  if (memory != NULL) return memory;
  (void)fprintf(stderr, "tidemark_bench: no memory\n");
  exit(1);
}

void bench_verify(bool is_right, const char* what) {
  if (is_right) return;
  (void)fprintf(stderr, "tidemark_bench: %s: the result is wrong\n", what);
  exit(1);
}

// ---------------------------------------------------------------------------------------------------
// Output

static void json_string(const char* key, const char* text) {
  (void)printf("\"%s\": \"", key);
  for (; *text != '\0'; text++) {
    const unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') (void)printf("\\%c", c);
    else if (c < 0x20) (void)printf("\\u%04x", c);
    else (void)putchar(c);
  }
  (void)putchar('"');
}

static void json_row(const char* name, const char* what, const char* peer, double value, const char* unit) {
  (void)printf("{");
  json_string("bench", name);
  (void)printf(", ");
  json_string("case", what);
  if (peer != NULL) {
    (void)printf(", ");
    json_string("peer", peer);
  }
  (void)printf(", \"value\": %.6g, ", value);
  json_string("unit", unit);
  (void)printf("}\n");
}

void bench_row_peer(bench* run, const char* name, const char* what, const char* peer, double value,
                    const char* unit) {
  char label[96];
  if (run->is_json) {
    json_row(name, what, peer, value, unit);
  } else {
    (void)snprintf(label, sizeof label, peer == NULL ? "%s" : "%s (%s)", what, peer);
    (void)printf("%-10s %-48s %14.*f %s\n", name, label, value < 100 ? 2 : 0, value, unit);
  }
  (void)fflush(stdout);
}

void bench_row(bench* run, const char* name, const char* what, double value, const char* unit) {
  bench_row_peer(run, name, what, NULL, value, unit);
}

void bench_skip(bench* run, const char* name, const char* what, const char* why) {
  (void)fprintf(run->is_json ? stderr : stdout, "%-10s %s: skipped: %s\n", name, what, why);
}

// ---------------------------------------------------------------------------------------------------
// The computer

// The value of the first line of /proc/cpuinfo with this key; false if there is none.
static bool cpuinfo_find(const char* key, char* out, size_t capacity) {
  char line[512];
  bool is_found = false;
  FILE* file = fopen("/proc/cpuinfo", "r");
  if (file == NULL) return false;
  while (!is_found && fgets(line, sizeof line, file) != NULL) {
    const char* value = strchr(line, ':');
    if (value == NULL || strncmp(line, key, strlen(key)) != 0) continue;
    value += strspn(value, ": \t");
    (void)snprintf(out, capacity, "%.*s", (int)strcspn(value, "\n"), value);
    is_found = true;
  }
  (void)fclose(file);
  return is_found;
}

// ARM processors give numbers instead of a name.
static const char* arm_name(const char* implementer, const char* part) {
  static const struct {
    const char* implementer;
    const char* part;
    const char* name;
  } known[] = {
    { "0x41", "0xd0c", "Arm Neoverse-N1" }, { "0x41", "0xd40", "Arm Neoverse-V1" },
    { "0x41", "0xd49", "Arm Neoverse-N2" }, { "0x41", "0xd4f", "Arm Neoverse-V2" },
    { "0x41", "0xd84", "Arm Neoverse-V3" }, { "0x41", "0xd8e", "Arm Neoverse-N3" },
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].implementer, implementer) == 0 && strcmp(known[i].part, part) == 0)
      return known[i].name;
  return NULL;
}

static void computer_name(char* out, size_t capacity) {
  char model[128];
  char implementer[32];
  char part[32];
  if (!cpuinfo_find("model name", model, sizeof model)) {
    const bool is_arm = cpuinfo_find("CPU implementer", implementer, sizeof implementer) &&
                        cpuinfo_find("CPU part", part, sizeof part);
    const char* name = is_arm ? arm_name(implementer, part) : NULL;
    if (name != NULL) (void)snprintf(model, sizeof model, "%s", name);
    else if (is_arm) (void)snprintf(model, sizeof model, "ARM implementer %s part %s", implementer, part);
    else (void)snprintf(model, sizeof model, "unknown processor");
  }
  (void)snprintf(out, capacity, "%s, %ld cores", model, sysconf(_SC_NPROCESSORS_ONLN));
}

static void heading(const bench* run) {
  char computer[192];
  char date[32];
  struct tm parts;
  const time_t now = time(NULL);
  computer_name(computer, sizeof computer);
  (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
  if (!run->is_json) {
    (void)printf("computer %s\ndate     %s\nversion  %s\nmedians of %d runs\n\n", computer, date,
                 tide_version(), BENCH_RUNS);
    return;
  }
  (void)printf("{");
  json_string("computer", computer);
  (void)printf(", ");
  json_string("date", date);
  (void)printf(", ");
  json_string("version", tide_version());
  (void)printf("}\n");
}

// ---------------------------------------------------------------------------------------------------
// The program

static void* volatile reference_sink;

static void reference_work(void* user, uint64_t count) {
  (void)user;
  for (uint64_t i = 0; i < count; i++) {
    reference_sink = malloc(64);
    free(reference_sink);
  }
}

// The same row in every run: how fast this computer is at the moment.
static void reference(bench* run) {
  const bench_job job = { .work = reference_work, .count = 1000000 };
  bench_row(run, "reference", "malloc and free of 64 bytes", bench_ns(&job), "ns");
}

typedef struct bench_entry {
  const char* name;
  void (*function)(bench* run);
} bench_entry;

#define BENCH_ENTRY(name) { #name, bench_##name },
static const bench_entry entries[] = { BENCH_MAP(BENCH_ENTRY) };
#undef BENCH_ENTRY
#define ENTRY_COUNT (sizeof entries / sizeof *entries)

static const bench_entry* entry_find(const char* name) {
  for (size_t i = 0; i < ENTRY_COUNT; i++)
    if (strcmp(entries[i].name, name) == 0) return &entries[i];
  return NULL;
}

static int usage(FILE* file) {
  (void)fprintf(file, "usage: tidemark_bench [NAME ...] [--json]\nnames:");
  for (size_t i = 0; i < ENTRY_COUNT; i++) (void)fprintf(file, " %s", entries[i].name);
  (void)fputc('\n', file);
  return file == stdout ? 0 : 2;
}

int main(int argc, char** argv) {
  bench run = { false };
  int named = 0;
  if (argc > 1 && strcmp(argv[1], "--sample") == 0) return tensors_sample_main(argc - 2, argv + 2);
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--json") == 0) run.is_json = true;
    else if (entry_find(argv[i]) != NULL) named++;
    else return usage(strcmp(argv[i], "--help") == 0 ? stdout : stderr);
  }

  heading(&run);
  reference(&run);
  for (size_t i = 0; named == 0 && i < ENTRY_COUNT; i++) entries[i].function(&run);
  for (int i = 1; i < argc; i++) {
    const bench_entry* entry = entry_find(argv[i]);
    if (entry != NULL) entry->function(&run);
  }
  return 0;
}
