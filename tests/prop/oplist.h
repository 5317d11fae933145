// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Random lists of operations, for tests beside a model. An operation is a few small numbers that mean
// something in any list. A list is played in a process of its own, so that a crash is a failure like any
// other: it is printed how to repeat it, then it is made shorter until no range of it can be left out or the
// time for that is over.
//
//   static bool play(const op* list, size_t count, size_t check_every) { ... outcome->at = i; ... }
//   static const op_suite suite = { "the cache", verbs, VERB_COUNT, play, 1024, 8, 16 };
//   suite_run(&suite, t_scaled(8000), true);
#ifndef TIDEMARK_TESTS_OPLIST_H
#define TIDEMARK_TESTS_OPLIST_H

#include <sys/mman.h>

#include "t.h"

#define OP_LIST_MAX 65536u
#define OP_PLAY_SECONDS 40u  // of processor time that one list may take

typedef struct op {
  uint8_t verb;
  uint8_t slot;
  uint8_t other;
  uint8_t value;
  uint32_t number;
} op;

typedef struct op_verb {
  const char* name;
  uint32_t weight;
} op_verb;

// Of a map of X(name, function, weight): the table of verbs, and that of their functions.
#define OP_VERB(name, function, weight) { #name, weight },
#define OP_FUNCTION(name, function, weight) function,

// How lists are made and played.
typedef struct op_suite {
  const char* subject;  // what is compared with the model
  const op_verb* verbs;
  size_t verb_count;
  // Plays a list from the beginning; false, with the outcome set, when the two disagree. Every
  // `check_every`-th operation is followed by a check of everything.
  bool (*play)(const op* list, size_t count, size_t check_every);
  size_t list_max;    // operations of a list, up to OP_LIST_MAX
  size_t full_every;  // one list of so many is checked after every operation
  size_t check_every;
} op_suite;

// ---------------------------------------------------------------------------------------------------
// What a run says, readable by the process that started it

typedef struct verdict {
  size_t at;  // the operation under way
  char text[512];
} verdict;

static verdict* outcome;  // shared with the processes of runs

// Memory that this process shares with those that it starts.
static inline void* shared_new(size_t bytes) {
  char name[] = "/tmp/outcome_XXXXXX";
  const int fd = mkstemp(name);
  T_CHECK(fd >= 0 && unlink(name) == 0 && ftruncate(fd, (off_t)bytes) == 0);
  void* const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  T_CHECK(memory != MAP_FAILED);
  (void)close(fd);
  return memory;
}

static inline void outcome_open(void) { outcome = shared_new(sizeof *outcome); }

#define EXPECT(condition, ...)                                          \
  do {                                                                  \
    if (!(condition)) {                                                 \
      (void)snprintf(outcome->text, sizeof outcome->text, __VA_ARGS__); \
      return false;                                                     \
    }                                                                   \
  } while (0)

static inline bool expect_status(const char* call, tide_status got, tide_status want) {
  EXPECT(got == want, "%s is %s, the model says %s (%.200s)", call, tide_status_name(got),
         tide_status_name(want), tide_last_error()->text);
  return true;
}
#define EXPECT_STATUS(call, want)                            \
  do {                                                       \
    if (!expect_status(#call, (call), (want))) return false; \
  } while (0)
#define EXPECT_OK(call) EXPECT_STATUS(call, TIDE_OK)

// Do two texts say the same, whatever the numbers?
static inline bool is_same_failure(const char* a, const char* b) {
  static const char numbers[] = "0123456789abcdefx";
  while (*a != '\0' && *b != '\0') {
    a += strspn(a, numbers);
    b += strspn(b, numbers);
    if (*a != *b) return false;
    if (*a != '\0') a++, b++;
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Playing

static inline op suite_random(const op_suite* suite, t_rng* rng) {
  const uint64_t bits = t_rng_next(rng);
  uint64_t sum = 0;
  uint8_t verb = 0;
  for (size_t i = 0; i < suite->verb_count; ++i) sum += suite->verbs[i].weight;
  T_LT(0, sum);
  uint64_t at = t_rng_below(rng, sum);
  while (at >= suite->verbs[verb].weight) at -= suite->verbs[verb++].weight;
  return (op){ verb, (uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16), (uint32_t)(bits >> 32) };
}

// Plays a list in a process of its own.
static inline bool suite_play(const op_suite* suite, const op* list, size_t count, size_t check_every,
                              bool is_silent) {
  (void)fflush(NULL);
  memset(outcome, 0, sizeof *outcome);
  const pid_t child = fork();
  T_CHECK(child >= 0);
  if (child == 0) {
    if (is_silent && freopen("/dev/null", "w", stderr) == NULL) _exit(2);
    t_limit_processor_time(OP_PLAY_SECONDS);
    (void)alarm(is_silent ? T_SHRINK_SECONDS : t_hang_factor() * OP_PLAY_SECONDS);
    if (suite->play(list, count, check_every)) exit(0);
    _exit(1);
  }
  int status = 0;
  T_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  if (outcome->text[0] != '\0') return false;
  if (WIFSIGNALED(status)) {
    (void)snprintf(outcome->text, sizeof outcome->text, "killed by %s", t_signal_name(WTERMSIG(status)));
  } else {
    (void)snprintf(outcome->text, sizeof outcome->text, "exit status %d", WEXITSTATUS(status));
  }
  return false;
}

// ---------------------------------------------------------------------------------------------------
// A list that fails

// Leaves out ever smaller ranges, as long as it still fails in the same way and there is time; returns how
// many operations are left.
static inline size_t suite_shrink(const op_suite* suite, op* list, size_t count, size_t check_every) {
  static op shorter[OP_LIST_MAX];
  const verdict first = *outcome;
  for (size_t part = count / 2; part > 0; part /= 2) {
    for (size_t begin = 0; begin + part <= count && t_shrink_has_time();) {
      memcpy(shorter, list, begin * sizeof *list);
      memcpy(shorter + begin, list + begin + part, (count - begin - part) * sizeof *list);
      if (suite_play(suite, shorter, count - part, check_every, true) ||
          !is_same_failure(outcome->text, first.text)) {
        begin += part;
        continue;
      }
      count = outcome->at + 1;
      memcpy(list, shorter, count * sizeof *list);
    }
  }
  return count;
}

static inline void suite_print(const op_suite* suite, const op* list, size_t count) {
  const size_t first = count < 100 ? 0 : count - 100;
  if (first > 0) (void)fprintf(stderr, "  ... %zu operations\n", first);
  for (size_t i = first; i < count; ++i) {
    (void)fprintf(stderr, "  { %s, %u, %u, %u, %u },\n", suite->verbs[list[i].verb].name, list[i].slot,
                  list[i].other, list[i].value, list[i].number);
  }
}

static inline void suite_report(const op_suite* suite, op* list, size_t count, size_t check_every) {
  t_shrink_begin("%s and the model disagree: operation %zu: %s", suite->subject, count - 1, outcome->text);
  if (!suite_play(suite, list, count, 1, true)) check_every = 1;  // then it shows where it goes wrong
  else if (suite_play(suite, list, count, check_every, true))
    (void)fprintf(stderr, "it does not fail every time\n");
  count = suite_shrink(suite, list, count, check_every);
  if (suite_play(suite, list, count, check_every, false))
    (void)fprintf(stderr, "the shorter list does not fail every time\n");
  (void)fprintf(stderr, "shorter: %s\n", outcome->text);
  suite_print(suite, list, count);
  T_FAIL("%s and the model disagree after %zu operations", suite->subject, count);
}

// Plays random lists of `wanted` operations in all; those that are not played apart are not made shorter.
static inline void suite_run(const op_suite* suite, size_t wanted, bool is_apart) {
  static op list[OP_LIST_MAX];
  const size_t most = suite->list_max;
  t_rng rng = t_rng_new(1);
  T_LE(most, OP_LIST_MAX);
  outcome_open();
  for (size_t done = 0; done < wanted; done += most) {
    const size_t count = wanted - done < most ? wanted - done : most;
    const size_t check_every = done / most % suite->full_every == 0 ? 1 : suite->check_every;
    for (size_t i = 0; i < count; ++i) list[i] = suite_random(suite, &rng);

    if (is_apart ? suite_play(suite, list, count, check_every, false) : suite->play(list, count, check_every))
      continue;

    if (is_apart) suite_report(suite, list, outcome->at + 1, check_every);
    suite_print(suite, list, outcome->at + 1);
    T_FAIL("seed %" PRIu64 ": %s", t_seed(), outcome->text);
  }
}

#endif
