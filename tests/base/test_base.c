// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The small parts: arithmetic at its edges, statuses, records, the order of locks.
#include <sys/wait.h>
#include <unistd.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/lock.h"
#include "t.h"

T_TEST(test_arith__a_square_root_is_the_largest_number_whose_square_fits) {
  T_EQ(tide__square_root(0), 0);
  for (uint64_t root = 1; root <= UINT32_MAX; root = root * 3 + 1) {
    T_EQ(tide__square_root(root * root - 1), root - 1);
    T_EQ(tide__square_root(root * root), root);
    T_EQ(tide__square_root(root * root + 2 * root), root);
  }
  T_EQ(tide__square_root(UINT64_MAX), UINT32_MAX);
}

T_TEST(test_arith__reports_overflow) {
  uint64_t out = 0;
  T_CHECK(tide__add(UINT64_MAX - 1, 1, &out) && out == UINT64_MAX);
  T_CHECK(!tide__add(UINT64_MAX, 1, &out));
  T_CHECK(tide__mul(UINT32_MAX, UINT32_MAX, &out));
  T_CHECK(!tide__mul((uint64_t)1 << 32, (uint64_t)1 << 32, &out));
  T_CHECK(tide__align_up(4097, 4096, &out) && out == 8192);
  T_CHECK(tide__align_up(0, 512, &out) && out == 0);
  T_CHECK(!tide__align_up(UINT64_MAX - 3, 512, &out));
}

T_TEST(test_arith__knows_powers_of_two) {
  T_CHECK(!tide__is_power_of_two(0));
  for (int i = 0; i < 64; i++) T_CHECK(tide__is_power_of_two((uint64_t)1 << i));
  for (int i = 2; i < 64; i++) T_CHECK(!tide__is_power_of_two(((uint64_t)1 << i) + 1));
}

T_TEST(test_status__each_has_a_name_and_a_text) {
#define STATUS_CHECK(name, value, text)                   \
  T_STR_EQ(tide_status_name(TIDE_##name), "TIDE_" #name); \
  T_STR_EQ(tide_status_text(TIDE_##name), text);          \
  T_EQ(TIDE_##name, value);
  TIDE_STATUS_MAP(STATUS_CHECK)
#undef STATUS_CHECK
  T_STR_EQ(tide_status_name((tide_status)9999), "TIDE_ERR_?");
}

static tide_status fail_with_a_long_text(void) { return TIDE_FAIL_NATIVE(TIDE_ERR_LIMIT, -7, "%02000d", 1); }

T_TEST(test_error__keeps_what_fits) {
  T_EQ(tide_last_error()->status, TIDE_OK);
  T_STR_EQ(tide_last_error()->text, "");

  T_STATUS(fail_with_a_long_text(), TIDE_ERR_LIMIT);

  T_EQ(tide_last_error()->status, TIDE_ERR_LIMIT);
  T_EQ(tide_last_error()->native, -7);
  T_EQ(strlen(tide_last_error()->text), sizeof tide_last_error()->text - 1);
}

T_TEST(test_version__is_that_of_the_header) {
  char text[32];
  (void)snprintf(text, sizeof text, "%d.%d.%d", TIDE_VERSION_MAJOR, TIDE_VERSION_MINOR, TIDE_VERSION_PATCH);
  T_STR_EQ(tide_version(), text);
  T_EQ(tide_version_number(), TIDE_VERSION_NUMBER);
  T_CHECK(TIDE_AT_LEAST(0, 1, 0) && !TIDE_AT_LEAST(99, 0, 0));
}

T_TEST(test_heap__gives_zeroed_lines_and_refuses_overflow) {
  const tide_heap* heap = tide__heap_or_system(NULL);
  unsigned char* records = tide__heap_alloc(heap, 10, 10);
  T_CHECK(records != NULL);
  T_FILLED(records, 0, 100);
  T_EQ((uintptr_t)records % 64, 0);
  T_PTR_EQ(tide__heap_alloc(heap, SIZE_MAX, 2), NULL);
  T_PTR_EQ(tide__heap_alloc(heap, 0, 8), NULL);
  tide__heap_release(heap, records, 10, 10);
  tide__heap_release(heap, NULL, 10, 10);
}

T_TEST(test_heap__growing_keeps_what_is_there) {
  void* array = NULL;
  size_t capacity = 0;
  for (size_t i = 0; i < 1000; i++) {
    T_CHECK(tide__heap_grow(&tide__system_heap, &array, &capacity, i + 1, sizeof(size_t)));
    ((size_t*)array)[i] = i;
  }
  for (size_t i = 0; i < 1000; i++) T_EQ(((size_t*)array)[i], i);
  tide__heap_release(&tide__system_heap, array, capacity, sizeof(size_t));
}

// Takes two locks in a child process; true if it survived.
static bool child_survives(tide__rank first, tide__rank second) {
  const pid_t child = fork();
  if (child == 0) {
    tide__mutex locks[2];
    tide__mutex_init(&locks[0], first);
    tide__mutex_init(&locks[1], second);
    if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
    tide__mutex_lock(&locks[0]);
    tide__mutex_lock(&locks[1]);
    _exit(0);
  }
  int status = 0;
  T_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

T_TEST(test_lock__order_is_checked) {
  if (TIDE_CHECK == 0) t_skip("built without assertions");
  T_CHECK(child_survives(TIDE__RANK_CAPTURE, TIDE__RANK_STREAM));
  T_CHECK(!child_survives(TIDE__RANK_STREAM, TIDE__RANK_CAPTURE));
  T_CHECK(!child_survives(TIDE__RANK_LEAF, TIDE__RANK_LEAF));
}
