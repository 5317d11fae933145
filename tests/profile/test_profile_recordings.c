// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Plans of recorded programs at the alignment of device memory: those beside the tests, and, when the
// optional data is there, two runs of training, whose plans must be as small as the project promises. Those
// beside the tests are also recorded and validated by notes, as a program with its own allocator would.
#include "planned.h"
#include "play.h"
#include "traces.h"

#define RECORDED_ALIGNMENT 512

typedef struct recording {
  tide_profile_request* requests;  // owned
  size_t count;
} recording;

// ---------------------------------------------------------------------------------------------------
// Requests of a trace

typedef struct holder {
  uint64_t address;
  size_t request;  // plus 1; 0: nobody
} holder;

// Where an address is, or would be, in a table of 2^20 places.
static holder* holder_of(holder* holders, uint64_t address) {
  const size_t mask = ((size_t)1 << 20) - 1;
  size_t at = (size_t)((address * 0x9e3779b97f4a7c15u) >> 44);
  while (holders[at].request != 0 && holders[at].address != address) at = (at + 1) & mask;
  return &holders[at];
}

// Every request of a trace lives until its release is asked for. A place stays taken by its address, so that
// the table needs no care.
static recording recording_of(const tide_trace* trace) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  recording r = { calloc(count + 1, sizeof *r.requests), 0 };
  holder* const holders = calloc((size_t)1 << 20, sizeof *holders);
  T_CHECK(r.requests != NULL && holders != NULL);
  for (size_t i = 0; i < count; i++) {
    const bool is_release = entries[i].action == TIDE_ACTION_FREE_REQUESTED;
    if (entries[i].action != TIDE_ACTION_ALLOC && !is_release) continue;
    holder* const h = holder_of(holders, entries[i].address);
    if (is_release && h->request != 0) {
      r.requests[h->request - 1].lifetime = r.count;
    } else if (!is_release && entries[i].bytes > 0) {
      *h = (holder){ entries[i].address, r.count + 1 };
      r.requests[r.count++] =
          (tide_profile_request){ entries[i].bytes, RECORDED_ALIGNMENT, TIDE_PROFILE_NEVER, 0 };
    }
  }
  free(holders);
  return r;
}

static void recording_fini(recording* r) { free(r->requests); }

// ---------------------------------------------------------------------------------------------------
// Plans

static tide_profile_plan* recording_plan(const recording* r) {
  tide_profile_plan* plan = NULL;
  const uint64_t start = t_now_ns();
  T_OK(tide_profile_plan_new(r->requests, r->count, NULL, &plan));
  const tide_profile_plan_info info = tide_profile_plan_describe(plan);
  (void)printf("     %zu requests: %" PRIu64 " bytes, lower bound %" PRIu64 ", planner %d, %.2f s\n",
               info.count, info.bytes, info.lower_bound, (int)info.planner,
               (double)(t_now_ns() - start) / 1e9);
  return plan;
}

static tide_profile_plan_info expect_planned_well(recording* r) {
  tide_profile_plan* const plan = recording_plan(r);
  const tide_profile_plan_info info = tide_profile_plan_describe(plan);
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;

  T_EQ(info.lower_bound, oracle_lower_bound(r->requests, r->count));
  T_LE(info.bytes, oracle_best_fit(r->requests, r->count, RECORDED_ALIGNMENT, false));
  T_LE(info.bytes, oracle_best_fit(r->requests, r->count, RECORDED_ALIGNMENT, true));

  planned_copy(plan, r->requests, r->count);
  T_OK(tide_profile_verify(r->requests, r->count, info.bytes, NULL, &check));
  T_EQ(check.fault, TIDE_PLAN_NO_FAULT);
  if (r->count < 4000) oracle_expect_sound(r->requests, r->count, info.bytes);
  tide_profile_plan_free(plan);
  return info;
}

static const char* const near_by[] = { "gnn_retry", "gnn_gc_split", "graphs", "resnet_stacks", NULL };

T_TEST_OVER(test_profile_recordings__never_above_best_fit, near_by) {
  tide_trace* const trace = trace_of_test(t_variant());
  recording r = recording_of(trace);

  (void)expect_planned_well(&r);

  recording_fini(&r);
  tide_trace_free(trace);
}

static const char* const promised[] = { "llama_train_fixed", "llama_ckpt_varlen", NULL };

T_TEST_OVER(test_profile_recordings__half_a_percent_above_the_lower_bound, promised) {
  char file[128];
  if (T_HAS_SANITIZER && t_scaled(100) < 1000) t_skip("under a sanitizer only with --full");
  (void)snprintf(file, sizeof file, "traces/%s.pickle.xz", t_variant());
  tide_trace* const trace = trace_of_data(file);
  recording r = recording_of(trace);
  tide_trace_free(trace);

  const tide_profile_plan_info info = expect_planned_well(&r);

  T_LE(info.bytes, info.lower_bound + info.lower_bound / 200);
  recording_fini(&r);
}

// ---------------------------------------------------------------------------------------------------
// Runs

// The addresses that a program would have been given, one for each request.
static const uint8_t note_base[1] = { 0 };

static void recording_note(tide_profile* profile, const recording* r) {
  size_t* const due = calloc(r->count + 1, sizeof *due);    // the first that is released then, plus 1
  size_t* const next = calloc(r->count + 1, sizeof *next);  // the next with it, plus 1
  T_CHECK(due != NULL && next != NULL);
  for (size_t t = 0; t <= r->count; t++) {
    for (size_t i = due[t]; i != 0; i = next[i - 1])
      T_OK(tide_profile_note_release(profile, (const void*)((uintptr_t)note_base + i * 16)));
    if (t == r->count) break;
    const tide_profile_request* const request = &r->requests[t];
    T_OK(tide_profile_note_alloc(profile, (const void*)((uintptr_t)note_base + (t + 1) * 16), request->bytes,
                                 RECORDED_ALIGNMENT));
    if (!oracle_is_managed(request)) continue;
    next[t] = due[request->lifetime];
    due[request->lifetime] = t + 1;
  }
  free(next);
  free(due);
}

T_TEST_OVER(test_profile_recordings__notes_give_the_same_plan, near_by) {
  tide_trace* const trace = trace_of_test(t_variant());
  recording r = recording_of(trace);
  const tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  play p;
  play_open(&p, &options);
  T_OK(tide_profile_begin(p.profile, TIDE_PROFILE_RECORD, 0));
  recording_note(p.profile, &r);
  T_OK(tide_profile_end(p.profile, &report));

  tide_profile_plan* const plan = recording_plan(&r);

  T_EQ(report.requests, r.count);
  T_EQ(play_info(&p, 0).hash, tide_profile_plan_describe(plan).hash);
  T_EQ(play_info(&p, 0).bytes, tide_profile_plan_describe(plan).bytes);
  tide_profile_plan_free(plan);
  T_OK(tide_profile_begin(p.profile, TIDE_PROFILE_VALIDATE, 0));
  recording_note(p.profile, &r);
  T_OK(tide_profile_end(p.profile, &report));
  T_CHECK(report.is_same);
  T_CHECK(report.passes_original);
  play_close(&p);
  recording_fini(&r);
  tide_trace_free(trace);
}
