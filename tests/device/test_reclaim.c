// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Functions that release memory, registered by name for all device caches of the process: before there is a
// cache and after, in which order, several threads at once, and in a child of fork().
#define T_THREADS
#include <stdatomic.h>
#include <sys/wait.h>

#include "device/devices.h"

typedef struct asked {
  int order;  // of the last call among all
  int times;
  tide_device_cache* device;
  tide_block held;  // released when it is asked
} asked;

static int asked_in_all;

static bool answer(void* user, tide_device_cache* device) {
  asked* const a = user;
  a->order = ++asked_in_all;
  a->times++;
  a->device = device;
  if (a->held.address == NULL) return false;
  give(device, a->held);
  a->held = block_none;
  return true;
}

static void reclaim_register(const char* name, asked* a) { T_OK(tide_reclaim_register(name, answer, a)); }

static void miss(tide_device_cache* d) { (void)take(d, NULL, 12 * MIB); }

// ---------------------------------------------------------------------------------------------------
// Who is asked, and when

static asked early;

static void need_early(tide_machine* m, tide_device_cache* d) {
  (void)m;
  miss(d);
  T_EQ(early.times, 1);
  T_PTR_EQ(early.device, d);
}

static void run_early(void) {
  reclaim_register("before any cache", &early);
  device_run(need_early);
}
T_REGISTER(test_reclaim__a_function_may_come_before_all_caches, run_early, device_names)

DEVICE_TEST(test_reclaim__every_cache_asks_after_its_own_functions_and_in_order) {
  asked own = { 0 };
  asked all[2] = { { 0 }, { 0 } };
  reclaim_register("first", &all[0]);
  reclaim_register("second", &all[1]);
  tide_device_cache* const later = device_new(m, 0, NULL);
  tide_device_cache* const caches[] = { d, later };
  for (int i = 0; i < 2; ++i) {
    own.times = 0;
    observe_reclaim(caches[i], answer, &own);
    miss(caches[i]);
    T_EQ(own.times, 1);
    T_EQ(all[1].times, i + 1);
    T_PTR_EQ(all[1].device, caches[i]);
    T_LT(own.order, all[0].order);
    T_LT(all[0].order, all[1].order);
  }
  tide_device_free(later);
}

DEVICE_TEST(test_reclaim__what_a_function_releases_serves_the_request) {
  (void)m;
  asked a = { .held = take(d, NULL, 12 * MIB) };
  limit_to(d, 14 * MIB);
  reclaim_register("weights", &a);
  miss(d);
  T_EQ(a.times, 1);
  T_EQ(current(d, allocation), 1);
}

// ---------------------------------------------------------------------------------------------------
// Names

DEVICE_TEST(test_reclaim__a_name_has_one_function_until_it_is_removed) {
  (void)m;
  char copy[] = "a";  // names are compared by their text
  asked a = { 0 };
  asked b = { 0 };
  reclaim_register("a", &a);
  T_STATUS(tide_reclaim_register(copy, answer, &b), TIDE_ERR_STATE);
  miss(d);
  T_OK(tide_reclaim_unregister(copy));
  T_STATUS(tide_reclaim_unregister("a"), TIDE_ERR_HANDLE);
  miss(d);
  reclaim_register("a", &b);
  miss(d);
  T_EQ(a.times, 1);
  T_EQ(b.times, 1);
}

T_TEST(test_reclaim__names_have_limits) {
  static char names[33][8];
  asked a = { 0 };
  T_STATUS(tide_reclaim_unregister("none yet"), TIDE_ERR_HANDLE);
  T_STATUS(tide_reclaim_register(NULL, answer, &a), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_reclaim_register("", answer, &a), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_reclaim_register("name", NULL, &a), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_reclaim_unregister(NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_reclaim_unregister(""), TIDE_ERR_ARGUMENT);
  for (int i = 0; i < 33; ++i) {
    (void)snprintf(names[i], sizeof names[i], "%d", i);
    T_STATUS(tide_reclaim_register(names[i], answer, &a), i < 32 ? TIDE_OK : TIDE_ERR_LIMIT);
  }
  T_OK(tide_reclaim_unregister(names[7]));
  reclaim_register(names[32], &a);
}

static bool leave(void* user, tide_device_cache* device) {
  (void)device;
  ++*(int*)user;
  T_OK(tide_reclaim_unregister("leaving"));
  return false;
}

DEVICE_TEST(test_reclaim__a_function_may_remove_itself) {
  (void)m;
  int times = 0;
  T_OK(tide_reclaim_register("leaving", leave, &times));
  miss(d);
  miss(d);
  T_EQ(times, 1);
}

// ---------------------------------------------------------------------------------------------------
// Threads

static atomic_bool is_over;
static atomic_int asked_at_once;

static bool count_asked(void* user, tide_device_cache* device) {
  (void)user, (void)device;
  atomic_fetch_add(&asked_at_once, 1);
  return false;
}

static void* come_and_go(void* name) {
  while (!atomic_load(&is_over)) {
    T_OK(tide_reclaim_register(name, count_asked, NULL));
    T_OK(tide_reclaim_unregister(name));
  }
  return NULL;
}

static void* grow_again_and_again(void* user) {
  const size_t times = t_scaled_least(200, 20);
  for (size_t i = 0; i < times; ++i) {
    give(user, take(user, NULL, 12 * MIB));
    trim(user);
  }
  return NULL;
}

DEVICE_TEST_OVER(test_reclaim__functions_come_and_go_while_they_are_asked, device_emulated) {
  static char names[2][2] = { "x", "y" };
  tide_device_cache* const other = device_new(m, 0, NULL);
  tide_device_cache* const growing[2] = { d, other };
  pthread_t threads[4];
  T_OK(tide_reclaim_register("stays", count_asked, NULL));
  for (size_t i = 0; i < 2; ++i) {
    t_thread_start(&threads[i], come_and_go, names[i]);
    t_thread_start(&threads[2 + i], grow_again_and_again, growing[i]);
  }
  for (size_t i = 2; i < 4; ++i) t_thread_join(threads[i]);
  atomic_store(&is_over, true);
  for (size_t i = 0; i < 2; ++i) t_thread_join(threads[i]);
  T_LE(2 * t_scaled_least(200, 20), (size_t)atomic_load(&asked_at_once));
  tide_device_free(other);
}

// A function that stays inside until it may leave.
typedef struct stay {
  atomic_bool is_inside;
  atomic_bool may_leave;
  atomic_bool has_left;
} stay;

static bool stay_inside(void* user, tide_device_cache* device) {
  stay* const s = user;
  (void)device;
  atomic_store(&s->is_inside, true);
  T_WAIT(atomic_load(&s->may_leave));
  atomic_store(&s->has_left, true);
  return false;
}

static void* miss_once(void* user) {
  miss(user);
  return NULL;
}

static void* let_leave(void* user) {
  atomic_store(&((stay*)user)->may_leave, true);
  return NULL;
}

DEVICE_TEST_OVER(test_reclaim__removing_waits_until_nobody_is_inside, device_emulated) {
  (void)m;
  static stay s;
  pthread_t threads[2];
  T_OK(tide_reclaim_register("stays inside", stay_inside, &s));
  t_thread_start(&threads[0], miss_once, d);
  T_WAIT(atomic_load(&s.is_inside));
  t_thread_start(&threads[1], let_leave, &s);
  T_OK(tide_reclaim_unregister("stays inside"));
  T_CHECK(atomic_load(&s.has_left));
  for (size_t i = 0; i < 2; ++i) t_thread_join(threads[i]);
}

// ---------------------------------------------------------------------------------------------------
// A child of fork()

// A library that is unloaded in the child waits for no thread of the parent.
static int leave_in_child(void) {
  asked a = { 0 };
  if (tide_reclaim_unregister("stays inside") != TIDE_OK) return 2;
  if (tide_reclaim_register("of the child", answer, &a) != TIDE_OK) return 3;
  return tide_reclaim_unregister("of the child") == TIDE_OK ? 0 : 4;
}

DEVICE_TEST_OVER(test_reclaim__a_child_removes_a_function_that_a_thread_of_the_parent_is_inside,
                 device_emulated) {
  (void)m;
  static stay s;
  pthread_t thread;
  pid_t ended = 0;
  int status = -1;
  T_OK(tide_reclaim_register("stays inside", stay_inside, &s));
  t_thread_start(&thread, miss_once, d);
  T_WAIT(atomic_load(&s.is_inside));
  const pid_t child = fork();
  if (child == 0) _exit(leave_in_child());
  T_WAIT(ended != 0 || (ended = waitpid(child, &status, WNOHANG)) != 0);
  T_EQ(ended, child);
  T_CHECK(WIFEXITED(status));
  T_EQ(WEXITSTATUS(status), 0);
  atomic_store(&s.may_leave, true);
  t_thread_join(thread);
  T_OK(tide_reclaim_unregister("stays inside"));  // which the parent still has
}
