// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The expectations of PyTorch's own tests of its mobile profiler, on a small network with a branch:
// recording, validating and replaying either branch, and strict replay refusing the other one.
#include "play.h"

#define NET_WIDTH 23  // so that sizes are no multiples of anything
#define NET_MOST 16   // intermediates

typedef struct net {
  tide_profile* profile;
  tide_status status;         // the first failure
  void* addresses[NET_MOST];  // of the intermediates, in their order
  size_t count;
  uint32_t output[NET_WIDTH];
} net;

// ---------------------------------------------------------------------------------------------------
// The network

static uint32_t* net_alloc(net* n, size_t numbers) {
  void* address = NULL;
  if (n->status != TIDE_OK) return NULL;
  n->status = tide_profile_alloc(n->profile, numbers * sizeof(uint32_t), 0, &address);
  if (n->status == TIDE_OK) n->addresses[n->count++] = address;
  return address;
}

static void net_release(net* n, uint32_t* address) {
  const tide_status status = tide_profile_release(n->profile, address);
  if (n->status == TIDE_OK) n->status = status;
}

// A new square of numbers made of two others; what goes in is released.
static uint32_t* net_multiply(net* n, uint32_t* a, size_t width) {
  uint32_t* const out = net_alloc(n, width * width);
  for (size_t i = 0; out != NULL && a != NULL && i < width * width; i++)
    out[i] = a[i] * 5 + a[(i * 7 + 3) % (width * width)];
  net_release(n, a);
  return out;
}

static uint32_t* net_relu_rows(net* n, uint32_t* a, size_t width) {
  uint32_t* const out = net_alloc(n, width);
  for (size_t i = 0; out != NULL && a != NULL && i < width; i++) {
    out[i] = 0;
    for (size_t k = 0; k < width; k++) out[i] += (int32_t)a[i * width + k] > 0 ? a[i * width + k] : 0;
  }
  net_release(n, a);
  return out;
}

// Runs the network; `branch` decides how often the middle is gone through, and on which sizes.
static void net_forward(net* n, int branch) {
  n->status = TIDE_OK;
  n->count = 0;
  memset(n->addresses, 0, sizeof n->addresses);
  uint32_t* x = net_alloc(n, NET_WIDTH * NET_WIDTH);
  for (size_t i = 0; x != NULL && i < NET_WIDTH * NET_WIDTH; i++) x[i] = (uint32_t)(i % 11) - 4;
  for (int i = 0; i < (branch > 0 ? 4 : 2); i++) x = net_multiply(n, x, NET_WIDTH);
  if (branch > 0) {
    uint32_t* const gate = net_alloc(n, NET_WIDTH + 5);
    for (size_t i = 0; gate != NULL && x != NULL && i < NET_WIDTH; i++) x[i] *= gate[i] = 3;
    x = net_multiply(n, x, NET_WIDTH);
    net_release(n, gate);
  }
  x = net_relu_rows(n, x, NET_WIDTH);
  if (x != NULL) memcpy(n->output, x, sizeof n->output);
  net_release(n, x);
}

// A run of a mode; false if something in it was refused.
static bool net_run(net* n, tide_profile_mode mode, int branch, tide_profile_report* out) {
  T_OK(tide_profile_begin(n->profile, mode, 0));
  net_forward(n, branch);
  T_OK(tide_profile_end(n->profile, out));
  return n->status == TIDE_OK;
}

static const char* const branches[] = { "0", "1", NULL };

static int this_branch(void) { return atoi(t_variant()); }

static void net_open(play* p, net* n, const tide_profile_options* options) {
  play_open(p, options);
  memset(n, 0, sizeof *n);
  n->profile = p->profile;
}

// With the options of the original, after this branch was recorded.
static void net_recorded(play* p, net* n) {
  const tide_profile_options options = TIDE_PROFILE_OPTIONS_ORIGINAL;
  net_open(p, n, &options);
  T_CHECK(net_run(n, TIDE_PROFILE_RECORD, this_branch(), NULL));
}

// ---------------------------------------------------------------------------------------------------
// The tests

T_TEST_OVER(test_profile_upstream__recording_with_control_flow_works, branches) {
  const tide_profile_options options = TIDE_PROFILE_OPTIONS_ORIGINAL;
  play p;
  net n;
  net_open(&p, &n, &options);

  T_CHECK(net_run(&n, TIDE_PROFILE_RECORD, this_branch(), NULL));

  T_EQ(play_info(&p, 0).count, n.count);
  T_EQ(play_info(&p, 0).managed, n.count);
  play_close(&p);
}

T_TEST_OVER(test_profile_upstream__ten_validations_of_the_same_branch_pass, branches) {
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  play p;
  net n;
  net_recorded(&p, &n);

  for (int i = 0; i < 10; i++) {
    T_CHECK(net_run(&n, TIDE_PROFILE_VALIDATE, this_branch(), &report));
    T_CHECK(report.passes_original);
    T_CHECK(report.is_same);
  }

  T_EQ(play_stats(&p).validated, 10);
  play_close(&p);
}

T_TEST_OVER(test_profile_upstream__validation_of_another_branch_fails, branches) {
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  play p;
  net n;
  net_recorded(&p, &n);

  T_CHECK(net_run(&n, TIDE_PROFILE_VALIDATE, 1 - this_branch(), &report));

  T_CHECK(!report.passes_original);
  T_CHECK(!report.is_same);
  play_close(&p);
}

T_TEST_OVER(test_profile_upstream__replay_gives_the_outputs_of_the_reference, branches) {
  const tide_profile_options options = TIDE_PROFILE_OPTIONS_ORIGINAL;
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  uint32_t reference[NET_WIDTH];
  play p;
  net n;
  net_open(&p, &n, &options);
  net_forward(&n, this_branch());  // without a run
  memcpy(reference, n.output, sizeof reference);
  T_CHECK(net_run(&n, TIDE_PROFILE_RECORD, this_branch(), NULL));
  T_EQ(memcmp(n.output, reference, sizeof reference), 0);

  for (int i = 0; i < 10; i++) {
    memset(n.output, 0xff, sizeof n.output);
    T_CHECK(net_run(&n, TIDE_PROFILE_REPLAY, this_branch(), &report));
    T_EQ(memcmp(n.output, reference, sizeof reference), 0);
    play_expect_same(&report, n.count);
  }

  play_close(&p);
}

T_TEST_OVER(test_profile_upstream__replay_gives_the_same_pointers_each_time, branches) {
  void* first[NET_MOST];
  play p;
  net n;
  net_recorded(&p, &n);
  T_CHECK(net_run(&n, TIDE_PROFILE_REPLAY, this_branch(), NULL));
  memcpy(first, n.addresses, sizeof first);

  for (int i = 0; i < 10; i++) {
    T_CHECK(net_run(&n, TIDE_PROFILE_REPLAY, this_branch(), NULL));
    T_EQ(memcmp(n.addresses, first, sizeof first), 0);
  }

  play_close(&p);
}

T_TEST_OVER(test_profile_upstream__strict_replay_of_another_branch_is_refused, branches) {
  play p;
  net n;
  net_recorded(&p, &n);

  T_CHECK(!net_run(&n, TIDE_PROFILE_REPLAY, 1 - this_branch(), NULL));

  T_STATUS(n.status, TIDE_ERR_STATE);
  T_PTR_EQ(tide_profile_innermost(), NULL);
  // What was refused to be released is released now; the rest is refused, since it is gone.
  for (size_t i = 0; i < n.count; i++) {
    const tide_status status = tide_profile_release(p.profile, n.addresses[i]);
    T_CHECK(status == TIDE_OK || status == TIDE_ERR_HANDLE);
  }
  T_EQ(play_stats(&p).survivors, 0);
  play_close(&p);
}

// Where the original fails, ours continues with the right outputs.
T_TEST_OVER(test_profile_upstream__tolerant_replay_of_another_branch_works, branches) {
  uint32_t reference[NET_WIDTH];
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  play p;
  net n;
  net_open(&p, &n, NULL);
  net_forward(&n, 1 - this_branch());
  memcpy(reference, n.output, sizeof reference);
  T_CHECK(net_run(&n, TIDE_PROFILE_RECORD, this_branch(), NULL));

  for (int i = 0; i < 10; i++) {
    memset(n.output, 0xff, sizeof n.output);
    T_CHECK(net_run(&n, TIDE_PROFILE_REPLAY, 1 - this_branch(), &report));
    T_EQ(memcmp(n.output, reference, sizeof reference), 0);
    play_expect_consistent(&report);
    T_CHECK(!report.is_same);
  }

  play_close(&p);
}
