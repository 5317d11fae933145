// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A recording with budgets: a model of eight layers under a limit of five, whose layers yield in turn, beside
// a key-value cache with a soft limit, and a trainer with a guarantee that asks for too much. What a snapshot
// says about a tag is what the allocator says, in every format. With TIDEMARK_BUDGETS_FILE set, the recording
// is written there:
//
//   TIDEMARK_BUDGETS_FILE=tests/data/tags/budgets.tide build/quick/tests/test_budget_recording
//
// It is made on the dry machine, whose clock and addresses are the same in every run.
#include <fcntl.h>

#include "base/heap.h"
#include "device/budget.h"
#include "tidemark/format.h"
#include "trace/tags.h"

enum { LAYERS = 8, LIMIT = 5, ROUNDS = 4, CACHE = 6, PASSING = 4, REFUSED = 2, TAGS = LAYERS + 5 };

static const char* const tide_dry[] = { "dry tide", NULL };

typedef struct job {
  tide_device_cache* d;
  tide_pool layers[LAYERS];
  tide_pool cache;
  tide_pool trainer;
  tide_block weights[LAYERS];
  tide_block state;
} job;

static const char* layer_tag(size_t number) {
  static const char* const tags[LAYERS] = { "model/0", "model/1", "model/2", "model/3",
                                            "model/4", "model/5", "model/6", "model/7" };
  return tags[number];
}

static void budgets_set(tide_device_cache* d) {
  tide_budget model = yielding(-3);
  model.limit = LIMIT * 2 * UNIT;
  model.is_constant = true;
  budget_to(d, "model", model);
  budget_to(d, "cache", softly(2 * UNIT));
  tide_budget train = guaranteed(6 * UNIT);
  train.limit = 12 * UNIT;
  budget_to(d, "train", train);
  budget_to(d, "spare", limited(3 * UNIT));  // no pool has it
}

static void job_make(job* j) {
  small_handles(j->d);
  limit_to(j->d, 24 * UNIT);
  budgets_set(j->d);
  history_on(j->d);
  j->cache = tagged(j->d, "cache");
  j->trainer = tagged(j->d, "train/state");
  j->state = take_tagged(j->d, j->trainer, NULL, 4 * UNIT);
  for (size_t i = 0; i < LAYERS; ++i) {
    j->layers[i] = tagged(j->d, layer_tag(i));
    j->weights[i] = take_tagged(j->d, j->layers[i], NULL, 2 * UNIT);
  }
}

// Activations, and a cache that grows and is left idle.
static void layer_work(job* j, size_t number) {
  tide_block blocks[PASSING];
  for (size_t i = 0; i < PASSING; ++i) blocks[i] = take(j->d, NULL, UNIT / 2);
  if (number % 2 == 0) leave_idle(j->d, j->cache, CACHE * UNIT / 2);
  for (size_t i = PASSING; i > 0; --i) give(j->d, blocks[i - 1]);
}

static void job_run(job* j) {
  for (size_t round = 0; round < ROUNDS; ++round) {
    for (size_t i = 0; i < LAYERS; ++i) {
      use(j->d, layer_tag(i));
      layer_work(j, i);
      done(j->d, layer_tag(i));
    }
    leave_idle(j->d, j->cache, CACHE * UNIT);
    give(j->d, take_tagged(j->d, j->trainer, NULL, 7 * UNIT));  // the cache gives way
  }
  for (size_t i = 0; i < REFUSED; ++i) expect_refused(j->d, j->trainer, 9 * UNIT);
}

static void job_end(job* j) {
  for (size_t i = 0; i < LAYERS; ++i) {
    use(j->d, layer_tag(i));
    give(j->d, j->weights[i]);
    done(j->d, layer_tag(i));
  }
  give(j->d, j->state);
}

// ---------------------------------------------------------------------------------------------------
// What a trace says

static tide_trace_tag tag_at(const tide_trace* trace, size_t number) {
  tide_trace_tag tag = TIDE_TRACE_TAG_INIT;
  T_OK(tide_trace_get_tag(trace, number, &tag));
  return tag;
}

static tide_trace_tag tag_in(const tide_trace* trace, const char* path) {
  for (size_t i = 0; i < tide_trace_tag_count(trace); ++i) {
    const tide_trace_tag tag = tag_at(trace, i);
    if (strcmp(tag.tag, path) == 0) return tag;
  }
  T_FAIL("the trace has no tag %s", path);
  return (tide_trace_tag)TIDE_TRACE_TAG_INIT;
}

static void expect_figures(const tide_trace_tag* got, const tide_budget_stats* want) {
  T_EQ(got->reserved_bytes, want->reserved_bytes);
  T_EQ(got->claimed_bytes, want->claimed_bytes);
  T_EQ(got->peak_reserved_bytes, want->peak_reserved_bytes);
  T_EQ(got->parked_count, want->parked_count);
  T_EQ(got->fetched_count, want->fetched_count);
  T_EQ(got->ahead_count, want->ahead_count);
  T_EQ(got->sent_bytes, want->sent_bytes);
  T_EQ(got->fetched_bytes, want->fetched_bytes);
  T_EQ(got->idle_bytes, want->idle_bytes);
  T_EQ(got->refused_count, want->refused_count);
}

static void expect_tag(tide_device_cache* d, const tide_trace* trace, const char* path) {
  const tide_trace_tag got = tag_in(trace, path);
  const tide_budget_stats stats = budget_stats(d, path);
  tide_budget budget = TIDE_BUDGET_INIT;
  T_OK(tide_device_budget_get(d, path, &budget));
  T_EQ(got.device, 0);
  T_EQ(got.limit, budget.limit);
  T_EQ(got.soft_limit, budget.soft_limit);
  T_EQ(got.guarantee, budget.guarantee);
  T_EQ(got.priority, budget.priority);
  T_EQ(got.yields, budget.yields);
  T_EQ(got.is_constant, budget.is_constant);
  expect_figures(&got, &stats);
}

// What the test itself knows.
static void expect_truth(const tide_trace* trace) {
  const tide_trace_tag model = tag_in(trace, "model");
  const tide_trace_tag train = tag_in(trace, "train");
  T_EQ(tide_trace_tag_count(trace), TAGS);
  T_CHECK(model.has_budget && !tag_in(trace, "model/3").has_budget);
  T_EQ(model.priority, -3);
  T_EQ(model.limit, LIMIT * 2 * UNIT);
  T_EQ(model.peak_reserved_bytes, model.limit);  // more layers wait than there is room for
  T_EQ(model.sent_bytes, LAYERS * 2 * UNIT);     // each is copied away once
  T_EQ(model.fetched_bytes, model.fetched_count * 2 * UNIT);
  T_LT(LAYERS, model.parked_count);
  T_EQ(train.peak_reserved_bytes, 11 * UNIT);
  T_EQ(train.refused_count, REFUSED);
  T_LT(0, tag_in(trace, "cache").idle_bytes);
  T_EQ(tag_in(trace, "spare").reserved_bytes, 0);
}

static void expect_all(tide_device_cache* d, const tide_trace* trace) {
  expect_truth(trace);
  expect_tag(d, trace, "model");
  for (size_t i = 0; i < LAYERS; ++i) expect_tag(d, trace, layer_tag(i));
  expect_tag(d, trace, "cache");
  expect_tag(d, trace, "train");
  expect_tag(d, trace, "train/state");
  expect_tag(d, trace, "spare");
}

// ---------------------------------------------------------------------------------------------------
// Files

static void save(const tide_trace* trace, int file, tide_format format) {
  const tide_sink sink = tide_sink_file(file);
  T_OK(tide_trace_write(trace, format, &sink));
}

static tide_trace* read_from_start(FILE* file) {
  const tide_source source = tide_source_file(fileno(file));
  tide_trace* trace = NULL;
  T_EQ(lseek(fileno(file), 0, SEEK_SET), 0);
  T_OK(tide_trace_read(&source, NULL, &trace));
  const int status = fclose(file);
  T_EQ(status, 0);
  return trace;
}

static tide_trace* reread(const tide_trace* trace, tide_format format) {
  FILE* const file = tmpfile();
  T_CHECK(file != NULL);
  save(trace, fileno(file), format);
  return read_from_start(file);
}

static void save_to(const tide_trace* trace, const char* path) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  T_LE(0, file);
  save(trace, file, TIDE_FORMAT_NATIVE);
  T_EQ(close(file), 0);
}

DEVICE_TEST_OVER(test_budget_recording__says_what_the_allocator_says, tide_dry) {
  static const tide_format formats[] = { TIDE_FORMAT_NATIVE, TIDE_FORMAT_PICKLE, TIDE_FORMAT_JSON };
  const char* const path = getenv("TIDEMARK_BUDGETS_FILE");
  job j = { .d = d };
  tide_trace* trace = NULL;
  job_make(&j);
  job_run(&j);
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_device_snapshot(d, NULL, trace));

  expect_all(d, trace);
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; ++i) {
    tide_trace* const again = reread(trace, formats[i]);
    expect_all(d, again);
    tide_trace_free(again);
  }
  if (path != NULL) save_to(trace, path);
  tide_trace_free(trace);
  job_end(&j);
}

DEVICE_TEST_OVER(test_budget_recording__several_devices_share_a_trace, tide_dry) {
  tide_trace_tag other = TIDE_TRACE_TAG_INIT;
  tide_trace* trace = NULL;
  other.device = 7;
  other.tag = "elsewhere";
  other.limit = other.soft_limit = UINT64_MAX - 1;
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide__trace_add_tags(trace, tide__heap_or_system(NULL), &other, 1));
  budget_to(d, "here", limited(UNIT));
  T_OK(tide_device_snapshot(d, NULL, trace));

  T_EQ(tide_trace_tag_count(trace), 2);
  T_EQ(tag_at(trace, 0).device, 7);
  T_EQ(tag_at(trace, 0).limit, UINT64_MAX - 1);
  T_STR_EQ(tag_at(trace, 1).tag, "here");
  T_EQ(tag_at(trace, 1).limit, UNIT);
  T_EQ(tag_at(trace, 1).soft_limit, UINT64_MAX);
  tide_trace_free(trace);
}

DEVICE_TEST_OVER(test_budget_recording__without_tags_a_snapshot_has_none, tide_dry) {
  tide_trace* trace = NULL;
  tide_trace_tag tag = TIDE_TRACE_TAG_INIT;
  give(d, take(d, NULL, UNIT));
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_device_snapshot(d, NULL, trace));
  T_EQ(tide_trace_tag_count(trace), 0);
  T_EQ(tide_trace_get_about(trace).extra, 0);
  T_EQ(tide_trace_tag_count(NULL), 0);
  T_STATUS(tide_trace_get_tag(trace, 0, &tag), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_get_tag(NULL, 0, &tag), TIDE_ERR_ARGUMENT);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Files of others

static tide_trace* read_text(const char* text) {
  FILE* const file = tmpfile();
  T_CHECK(file != NULL);
  T_EQ(write(fileno(file), text, strlen(text)), (ssize_t)strlen(text));
  return read_from_start(file);
}

T_TEST(test_budget_recording__ignores_what_is_not_of_its_kind) {
  tide_trace* const trace =
      read_text("{\"segments\": [], \"device_traces\": [], \"tags\": [17, {\"tag\": 3, \"limit\": \"much\", "
                "\"priority\": 4294967296, \"yields\": 1, \"guarantee\": -5, \"peak_reserved_bytes\": 1.5}, "
                "{\"tag\": \"a\", \"limit\": 12, \"new\": []}]}");
  T_EQ(tide_trace_tag_count(trace), 3);
  for (size_t i = 0; i < 2; ++i) {
    const tide_trace_tag tag = tag_at(trace, i);
    T_STR_EQ(tag.tag, "");
    T_EQ(tag.limit, UINT64_MAX);
    T_EQ(tag.guarantee + tag.peak_reserved_bytes, 0);
    T_EQ(tag.priority, 0);
    T_CHECK(!tag.yields);
  }
  T_STR_EQ(tag_at(trace, 2).tag, "a");
  T_EQ(tag_at(trace, 2).limit, 12);
  tide_trace_free(trace);
  tide_trace* const other = read_text("{\"segments\": [], \"device_traces\": [], \"tags\": {\"a\": 1}}");
  T_EQ(tide_trace_tag_count(other), 0);
  tide_trace_free(other);
}
