// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How good plans are, and how long they take:
//   capacity    the problems of MiniMalloc, which are hard to fit into their capacity: milliseconds until a
//               plan fits, the median and the worst of ten seeds, each the best of three tries; beside it
//               MiniMalloc itself, if a program `minimalloc` is on the PATH
//   peak        real problems: how far the peak is from the lower bound, and when that was known
//   synthetic   a million buffers of a training step and at random; perfect packings, whose smallest peak
//               is known; see plan_problems.h
//   pieces      one node, one buffer of the verifier
// with one thread, and where it can help with two.
//
// The real problems lie in the folder `planner` of $TIDEMARK_DATA, by default ../shared; without it their
// rows are skipped. Times are without reading the file. With one thread they are processor time, which other
// work on the computer changes least; with two, and as MiniMalloc says itself, the clock's.
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plan_problems.h"

#define PLAN_SEEDS 10
#define PLAN_TRIES 3
#define PLAN_PATH 1024
#define PLAN_MILLION 1000000u
#define PLAN_PEER_SECONDS 30
#define PLAN_TRAINS 10

extern char** environ;

// ---------------------------------------------------------------------------------------------------
// A heap that records its peak, for one thread

typedef struct plan_heap {
  size_t taken;
  size_t most;
} plan_heap;

static void* plan_heap_alloc(void* user, size_t bytes, size_t alignment) {
  plan_heap* const h = user;
  void* address = NULL;
  if (posix_memalign(&address, alignment, bytes) != 0) return NULL;
  h->taken += bytes;
  if (h->taken > h->most) h->most = h->taken;
  return address;
}

static void plan_heap_release(void* user, void* address, size_t bytes) {
  ((plan_heap*)user)->taken -= bytes;
  free(address);
}

// ---------------------------------------------------------------------------------------------------
// Solving

typedef struct plan_wish {
  uint64_t capacity;  // 0: the smallest peak is wanted
  double seconds;     // 0: no limit
  uint64_t nodes;     // 0: no limit
  uint64_t seed;
  uint32_t threads;  // 0: one, whose memory is counted
} plan_wish;

typedef struct plan_answer {
  tide_plan_outcome outcome;
  double seconds;
  double verify_seconds;
  size_t heap_bytes;  // the most at a time
} plan_answer;

static double plan_seconds(uint64_t ns) { return (double)ns * 1e-9; }

static bool plan_is_solved(const plan_answer* answer) {
  return answer->outcome.verdict <= TIDE_PLAN_FEASIBLE;
}

static double plan_percent_over(const plan_answer* answer) { return answer->outcome.gap * 100; }

static void plan_check(const tide_plan_problem* problem, const tide_plan* plan, plan_answer* answer) {
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  const uint64_t start = bench_processor_now();
  bench_require(tide_plan_verify(problem, tide_plan_offsets(plan), tide_plan_pools(plan), NULL, &check),
                "plan_verify");
  answer->verify_seconds = plan_seconds(bench_processor_now() - start);
  bench_verify(check.fault == TIDE_PLAN_NO_FAULT && check.peak == answer->outcome.peak, "plan");
}

static plan_answer plan_solve(const plan_sample* sample, const plan_wish* wish) {
  const tide_plan_problem problem = { .buffers = sample->buffers,
                                      .count = sample->count,
                                      .capacities = &wish->capacity,
                                      .pools = wish->capacity > 0 };
  plan_heap taken = { 0, 0 };
  const tide_heap heap = { plan_heap_alloc, plan_heap_release, &taken };
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  options.goal = wish->capacity > 0 ? TIDE_PLAN_FIT : TIDE_PLAN_PEAK;
  options.seconds = wish->seconds;
  options.nodes = wish->nodes;
  options.seed = wish->seed;
  options.threads = wish->threads > 0 ? wish->threads : 1;
  options.heap = wish->threads > 0 ? NULL : &heap;
  tide_plan* plan = NULL;
  uint64_t (*const now)(void) = options.threads > 1 ? bench_now : bench_processor_now;
  const uint64_t start = now();
  bench_require(tide_plan_solve(&problem, &options, &plan), "plan_solve");
  plan_answer answer = { .seconds = plan_seconds(now() - start), .outcome = tide_plan_result(plan) };
  if (plan_is_solved(&answer)) plan_check(&problem, plan, &answer);
  tide_plan_free(plan);
  answer.heap_bytes = taken.most;
  return answer;
}

// The fastest of some tries, which differ only by the noise of the computer. A problem that is not solved at
// the first try is not tried again.
static plan_answer plan_solve_best(const plan_sample* sample, const plan_wish* wish) {
  plan_answer best = plan_solve(sample, wish);
  for (size_t i = 1; i < PLAN_TRIES && plan_is_solved(&best); i++) {
    const plan_answer again = plan_solve(sample, wish);
    if (again.seconds < best.seconds) best = again;
  }
  return best;
}

// ---------------------------------------------------------------------------------------------------
// MiniMalloc itself

// Reads the output of the program until it ends; false if it takes too long, or prints too much.
static bool peer_listen(int from, char* text, size_t room, int seconds) {
  const uint64_t start = bench_now();
  size_t bytes = 0;
  for (text[0] = '\0'; plan_seconds(bench_now() - start) < seconds && bytes + 1 < room;) {
    struct pollfd wait = { .fd = from, .events = POLLIN };
    if (poll(&wait, 1, 100) <= 0) continue;
    const ssize_t got = read(from, text + bytes, room - 1 - bytes);
    if (got <= 0) return true;
    bytes += (size_t)got;
    text[bytes] = '\0';
  }
  return false;
}

// Starts the program with its output in a pipe; returns 0 or the error.
static int peer_start(char** argv, pid_t* out_pid, int* out_from) {
  int ends[2];
  posix_spawn_file_actions_t actions;
  bench_verify(pipe(ends) == 0 && posix_spawn_file_actions_init(&actions) == 0, "pipe");
  (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  (void)posix_spawn_file_actions_addclose(&actions, ends[0]);
  (void)posix_spawn_file_actions_addclose(&actions, ends[1]);
  const int error = posix_spawnp(out_pid, argv[0], &actions, NULL, argv, environ);
  (void)posix_spawn_file_actions_destroy(&actions);
  (void)close(ends[1]);
  *out_from = ends[0];
  if (error != 0) (void)close(ends[0]);
  return error;
}

typedef struct peer_answer {
  double ms;
  const char* why;  // there is none; NULL: it was solved
  bool is_there;    // the program
} peer_answer;

static peer_answer peer_measure(const char* path, uint64_t capacity) {
  static const char said[] = "Elapsed time ";
  char arguments[4][PLAN_PATH + 16] = { "minimalloc", "", "", "--output=/dev/null" };
  char text[4096];
  pid_t pid = 0;
  int from = -1;
  int status = 0;
  (void)snprintf(arguments[1], sizeof arguments[1], "--capacity=%" PRIu64, capacity);
  (void)snprintf(arguments[2], sizeof arguments[2], "--input=%s", path);
  char* argv[] = { arguments[0], arguments[1], arguments[2], arguments[3], NULL };
  const int error = peer_start(argv, &pid, &from);
  if (error == ENOENT) return (peer_answer){ 0, "there is no program of this name on the PATH", false };
  if (error != 0) return (peer_answer){ 0, strerror(error), false };
  const bool is_done = peer_listen(from, text, sizeof text, PLAN_PEER_SECONDS);
  if (!is_done) (void)kill(pid, SIGKILL);
  (void)waitpid(pid, &status, 0);
  (void)close(from);
  const char* const at = strstr(text, said);
  if (!is_done) return (peer_answer){ 0, "no plan within 30 s", true };
  if (status != 0 || at == NULL) return (peer_answer){ 0, "it did not succeed", true };
  return (peer_answer){ strtod(at + strlen(said), NULL) * 1e3, NULL, true };
}

// ---------------------------------------------------------------------------------------------------
// Fitting a capacity

typedef struct plan_contest {
  bench* run;          // borrowed
  const char* folder;  // borrowed
  size_t problems;
  size_t solved;
  double sum_ms;
  double threads_sum_ms;   // with two threads
  double peer_sum_ms;      // of what the peer solved
  double against_peer_ms;  // of ours on the same
  bool has_peer;
} plan_contest;

static void plan_row(bench* run, const char* problem, const char* what, double value, const char* unit) {
  char label[96];
  (void)snprintf(label, sizeof label, "%s: %s", problem, what);
  bench_row(run, "plan", label, value, unit);
}

static void plan_path(char out[PLAN_PATH], const char* folder, const char* file, const char* ending) {
  const int length = snprintf(out, PLAN_PATH, "%s/%s%s", folder, file, ending);
  bench_verify(length > 0 && length < PLAN_PATH, folder);
}

static void contest_run_peer(plan_contest* contest, const char* name, const char* path, uint64_t capacity,
                             double ours_ms) {
  char label[96];
  const peer_answer answer = peer_measure(path, capacity);
  (void)snprintf(label, sizeof label, "%s: until it fits", name);
  contest->has_peer = answer.is_there;
  if (answer.why != NULL) {
    bench_skip(contest->run, "plan", answer.is_there ? label : "minimalloc", answer.why);
    return;
  }
  bench_row_peer(contest->run, "plan", label, "minimalloc", answer.ms, "ms");
  plan_row(contest->run, name, "times faster than minimalloc", answer.ms / ours_ms, "x");
  contest->peer_sum_ms += answer.ms;
  contest->against_peer_ms += ours_ms;
}

// The median of all seeds.
static double contest_run_seeds(plan_contest* contest, const char* name, const plan_sample* sample,
                                const plan_wish* like) {
  double ms[PLAN_SEEDS];
  size_t solved = 0;
  for (uint64_t seed = 0; seed < PLAN_SEEDS; seed++) {
    plan_wish wish = *like;
    wish.seed = seed;
    const plan_answer answer = plan_solve_best(sample, &wish);
    ms[seed] = answer.seconds * 1e3;
    solved += plan_is_solved(&answer);
  }
  const double median = bench_median(ms, PLAN_SEEDS);
  if (like->threads > 1) return median;
  contest->solved += solved;
  plan_row(contest->run, name, "until it fits, median of 10 seeds", median, "ms");
  plan_row(contest->run, name, "until it fits, worst of 10 seeds", ms[PLAN_SEEDS - 1], "ms");
  return median;
}

// One file minimalloc-NAME.CAPACITY.csv.
static void contest_run_file(plan_contest* contest, const char* file) {
  char path[PLAN_PATH];
  char name[64];
  plan_sample sample;
  const char* const from = strchr(file, '-') + 1;
  const size_t length = strcspn(from, ".");
  const uint64_t capacity = strtoull(from + length + (from[length] == '.'), NULL, 10);
  (void)snprintf(name, sizeof name, "%.*s", (int)length, from);
  plan_path(path, contest->folder, file, "");
  bench_verify(capacity > 0 && plan_sample_read(path, &sample), path);
  const plan_wish one = { .capacity = capacity, .seconds = 10 };
  const plan_wish two = { .capacity = capacity, .seconds = 10, .threads = 2 };
  const double ms = contest_run_seeds(contest, name, &sample, &one);
  contest->sum_ms += ms;
  contest->threads_sum_ms += contest_run_seeds(contest, name, &sample, &two);
  contest->problems++;
  if (contest->has_peer) contest_run_peer(contest, name, path, capacity, ms);
  plan_sample_free(&sample);
}

static int contest_has(const struct dirent* entry) {
  return strncmp(entry->d_name, "minimalloc-", strlen("minimalloc-")) == 0;
}

static void plan_measure_capacity(bench* run, const char* folder) {
  plan_contest contest = { .run = run, .folder = folder, .has_peer = true };
  struct dirent** files = NULL;
  char unit[32];
  const int count = scandir(folder, &files, contest_has, alphasort);
  for (int i = 0; i < count; i++) {
    contest_run_file(&contest, files[i]->d_name);
    free(files[i]);
  }
  if (count >= 0) free(files);
  if (contest.problems == 0) {
    bench_skip(run, "plan", "the problems of MiniMalloc",
               "there are none in the folder planner of TIDEMARK_DATA");
    return;
  }
  (void)snprintf(unit, sizeof unit, "of %zu", contest.problems * PLAN_SEEDS);
  plan_row(run, "all of these", "solved", (double)contest.solved, unit);
  plan_row(run, "all of these", "sum of medians", contest.sum_ms, "ms");
  plan_row(run, "all of these", "sum of medians, two threads", contest.threads_sum_ms, "ms");
  if (contest.peer_sum_ms <= 0) return;
  bench_row_peer(run, "plan", "all of these: sum", "minimalloc", contest.peer_sum_ms, "ms");
  plan_row(run, "all of these", "times faster than minimalloc", contest.peer_sum_ms / contest.against_peer_ms,
           "x");
}

// ---------------------------------------------------------------------------------------------------
// The smallest peak

static void plan_peak_rows(bench* run, const char* name, const plan_answer* answer) {
  const bool is_optimal = answer->outcome.verdict == TIDE_PLAN_OPTIMAL;
  plan_row(run, name, "over the lower bound", plan_percent_over(answer), "%");
  plan_row(run, name, is_optimal ? "proved optimal after" : "best after", answer->seconds, "s");
}

static void plan_measure_peak(bench* run, const char* folder, const char* file, double seconds) {
  char path[PLAN_PATH];
  plan_sample sample;
  const plan_wish wish = { .seconds = seconds };
  plan_path(path, folder, file, ".csv");
  if (!plan_sample_read(path, &sample)) {
    bench_skip(run, "plan", file, "it is not in the folder planner of TIDEMARK_DATA");
    return;
  }
  const plan_answer answer = plan_solve(&sample, &wish);
  plan_peak_rows(run, file, &answer);
  plan_sample_free(&sample);
}

static void plan_measure_peaks(bench* run, const char* folder) {
  static const struct {
    const char* file;
    double seconds;
  } problems[] = { { "minimalloc-C.1048576", 3 },
                   { "minimalloc-D.1048576", 3 },
                   { "minimalloc-J.1048576", 3 },
                   { "armnn_fsrcnn_720p", 3 },
                   { "somas_tensors_resnet50", 3 },
                   { "somas_tensors_pangu_2.6B", 3 },
                   { "iopddl_G_1", 3 },
                   { "iopddl-contest-C", 3 },
                   { "iopddl-contest-D", 3 },
                   { "iopddl-contest-L", 3 },
                   { "iopddl_S_1", 5 },
                   { "iopddl-contest-A", 5 } };
  for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
    plan_measure_peak(run, folder, problems[i].file, problems[i].seconds);
}

// ---------------------------------------------------------------------------------------------------
// Synthetic problems

// Most of these reach the bound with their first passes, and a few never do, so several are measured.
static void plan_measure_train(bench* run) {
  const char* const name = "training, 1000000 buffers";
  double seconds[PLAN_TRAINS];
  double worst = 0;
  double verify_seconds = 0;
  size_t solved = 0;
  size_t soon = 0;
  size_t most_bytes = 0;
  for (uint64_t seed = 1; seed <= PLAN_TRAINS; seed++) {
    plan_sample sample = plan_sample_train(PLAN_MILLION, seed);
    const plan_wish wish = { .seconds = 8 };
    const plan_answer answer = plan_solve(&sample, &wish);
    seconds[seed - 1] = answer.seconds;
    solved += answer.outcome.verdict == TIDE_PLAN_OPTIMAL;
    soon += answer.outcome.verdict == TIDE_PLAN_OPTIMAL && answer.seconds < 4;
    if (plan_percent_over(&answer) > worst) worst = plan_percent_over(&answer);
    if (answer.heap_bytes > most_bytes) most_bytes = answer.heap_bytes;
    verify_seconds = answer.verify_seconds;
    plan_sample_free(&sample);
  }
  plan_row(run, name, "proved optimal within 8 s", (double)solved, "of 10");
  plan_row(run, name, "proved optimal within 4 s", (double)soon, "of 10");
  plan_row(run, name, "median", bench_median(seconds, PLAN_TRAINS), "s");
  plan_row(run, name, "worst, over the lower bound", worst * 1e4, "millionths");
  plan_row(run, name, "memory", (double)most_bytes * 1e-6, "MB");
  plan_row(run, name, "verifier, a buffer", verify_seconds * 1e9 / PLAN_MILLION, "ns");
}

static void plan_measure_random(bench* run) {
  plan_sample sample = plan_sample_random(PLAN_MILLION, 1);
  const plan_wish wish = { .seconds = 15 };
  const plan_wish pass = { .nodes = PLAN_MILLION };
  const char* const name = "random, 1000000 buffers";
  plan_answer answer = plan_solve(&sample, &wish);
  plan_peak_rows(run, name, &answer);
  plan_row(run, name, "memory", (double)answer.heap_bytes * 1e-6, "MB");
  answer = plan_solve(&sample, &pass);
  plan_row(run, name, "over it after as many nodes", plan_percent_over(&answer), "%");
  plan_row(run, name, "a node", answer.seconds * 1e9 / (double)answer.outcome.nodes, "ns");
  plan_sample_free(&sample);
}

// `percent` of the buffers are taken away.
static void plan_measure_perfect(bench* run, const char* name, size_t percent, uint32_t threads) {
  enum { COUNT = 300, SEEDS = 20 };
  double ms[SEEDS];
  double solved = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    plan_sample sample = plan_sample_perfect(COUNT, seed);
    plan_sample_drop(&sample, percent, seed);
    const plan_wish wish = { .capacity = sample.peak, .seconds = 0.5, .seed = seed, .threads = threads };
    const plan_answer answer = plan_solve_best(&sample, &wish);
    ms[seed] = answer.seconds * 1e3;
    solved += plan_is_solved(&answer);
    plan_sample_free(&sample);
  }
  const double median = bench_median(ms, SEEDS);
  plan_row(run, name, "solved within 0.5 s", solved, "of 20");
  plan_row(run, name, "median", median, "ms");
  plan_row(run, name, "worst", ms[SEEDS - 1], "ms");
}

void bench_plan(bench* run) {
  char folder[PLAN_PATH];
  const char* const data = getenv("TIDEMARK_DATA");
  const bool is_set = data != NULL && *data != '\0';
  plan_path(folder, is_set ? data : "../shared", "planner", "");
  plan_measure_capacity(run, folder);
  plan_measure_peaks(run, folder);
  plan_measure_train(run);
  plan_measure_random(run);
  plan_measure_perfect(run, "perfect packings, 300 buffers", 0, 1);
  plan_measure_perfect(run, "the same without 8 %", 8, 1);
  plan_measure_perfect(run, "the same without 8 %, two threads", 8, 2);
}
