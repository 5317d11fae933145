// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Members of a ledger in one process: what they may take, and what others see of them.
#define T_THREADS
#include "ledgers.h"

static void no_answer(void* user, const tide_quota_ask* ask) {
  (void)user, (void)ask;
  T_FAIL("nobody should be asked");
}

T_TEST(test_quota__members_share_a_total) {
  tide_quota* const a = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  tide_quota* const b = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  T_OK(tide_quota_take(a, 60 * MIB));
  T_OK(tide_quota_take(b, 40 * MIB));
  T_STATUS(tide_quota_take(a, 1), TIDE_ERR_NO_MEMORY);
  T_STR_HAS(tide_last_error()->text, "others hold too much");
  T_OK(tide_quota_give(b, MIB));
  T_OK(tide_quota_take(a, MIB));
  T_STATUS(tide_quota_take(b, 1), TIDE_ERR_NO_MEMORY);
  T_STATUS(tide_quota_give(b, 40 * MIB), TIDE_ERR_ARGUMENT);
  T_OK(tide_quota_take(a, 0));
  T_OK(tide_quota_give(a, 0));
  tide_quota_leave(a);
  T_OK(tide_quota_take(b, 61 * MIB));
  tide_quota_leave(b);
  T_EQ(ledger_look(ledger_path()).count, 0);
  ledger_end();
}

T_TEST(test_quota__guarantees_of_others_are_left_free) {
  tide_quota* const a = member_join(ledger_path(), 30 * MIB, TIDE_NO_LIMIT);
  tide_quota* const b = member_join(ledger_path(), 20 * MIB, TIDE_NO_LIMIT);
  T_OK(tide_quota_take(a, 80 * MIB));
  T_STATUS(tide_quota_take(a, 1), TIDE_ERR_LIMIT);  // it will never fit beside the guarantee
  T_STR_HAS(tide_last_error()->text, "guarantees of others");
  T_OK(tide_quota_take(b, 20 * MIB));
  T_STATUS(tide_quota_take(b, 1), TIDE_ERR_NO_MEMORY);
  T_OK(tide_quota_give(a, 60 * MIB));
  T_OK(tide_quota_take(b, 50 * MIB));
  T_STATUS(tide_quota_take(b, 1), TIDE_ERR_LIMIT);
  T_OK(tide_quota_take(a, 10 * MIB));
  tide_quota_leave(a);
  tide_quota_leave(b);
  ledger_end();
}

T_TEST(test_quota__guarantees_never_exceed_the_total) {
  tide_quota_options options = member_options(ledger_path());
  tide_quota* const a = member_join(ledger_path(), 70 * MIB, TIDE_NO_LIMIT);
  tide_quota* b = NULL;
  options.guarantee_bytes = 30 * MIB + 1;
  T_STATUS(tide_quota_join(&options, &b), TIDE_ERR_LIMIT);
  T_PTR_EQ(b, NULL);
  options.guarantee_bytes = 30 * MIB;
  T_OK(tide_quota_join(&options, &b));
  tide_quota_leave(a);
  tide_quota_leave(b);
  ledger_end();
}

T_TEST(test_quota__a_limit_is_kept) {
  tide_quota* const a = member_join(ledger_path(), 0, 10 * MIB);
  T_OK(tide_quota_take(a, 10 * MIB));
  T_STATUS(tide_quota_take(a, 1), TIDE_ERR_LIMIT);
  T_STR_HAS(tide_last_error()->text, "limit of 10485760 bytes");
  tide_quota_leave(a);
  ledger_end();
}

// A guarantee that joins late is complete when others have given enough back.
T_TEST(test_quota__a_late_guarantee_stops_the_others) {
  tide_quota* const a = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  T_OK(tide_quota_take(a, 90 * MIB));
  tide_quota* const b = member_join(ledger_path(), 40 * MIB, TIDE_NO_LIMIT);
  T_OK(tide_quota_take(b, 10 * MIB));
  T_STATUS(tide_quota_take(b, MIB), TIDE_ERR_NO_MEMORY);
  T_OK(tide_quota_give(a, 50 * MIB));
  T_STATUS(tide_quota_take(a, 21 * MIB), TIDE_ERR_LIMIT);
  T_OK(tide_quota_take(a, 20 * MIB));
  T_OK(tide_quota_take(b, 30 * MIB));
  tide_quota_leave(a);
  tide_quota_leave(b);
  ledger_end();
}

T_TEST(test_quota__readers_see_what_members_hold) {
  tide_quota_options options = member_options(ledger_path());
  options.name = "a name that is longer than the room there is";
  options.priority = -7;
  options.guarantee_bytes = 3 * MIB;
  options.limit_bytes = 50 * MIB;
  options.has_helper = true;
  options.on_ask = no_answer;
  tide_quota* a = NULL;
  T_OK(tide_quota_join(&options, &a));
  tide_quota* const b = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  T_OK(tide_quota_take(a, 20 * MIB));
  T_OK(tide_quota_give(a, 5 * MIB));
  T_OK(tide_quota_take(b, 2 * MIB));
  const ledger_view view = ledger_look(ledger_path());
  T_EQ(view.count, 2);
  T_EQ(view.ledger.total_bytes, 100 * MIB);
  T_EQ(view.ledger.held_bytes, 17 * MIB);
  T_EQ(view.ledger.guarantee_bytes, 3 * MIB);
  T_CHECK(!view.ledger.is_damaged);
  T_STR_EQ(view.ledger.path, ledger_path());
  const tide_quota_member* const first = &view.members[0];
  T_EQ(first->pid, getpid());
  T_CHECK(first->is_in_namespace && first->has_helper);
  T_EQ(first->priority, -7);
  T_EQ(first->held_bytes, 15 * MIB);
  T_EQ(first->peak_bytes, 20 * MIB);
  T_EQ(first->guarantee_bytes, 3 * MIB);
  T_EQ(first->limit_bytes, 50 * MIB);
  T_STR_EQ(first->name, "a name that is longer than the ");
  T_EQ(view.members[1].limit_bytes, TIDE_NO_LIMIT);
  T_EQ(view.members[1].held_bytes, 2 * MIB);
  tide_quota_leave(a);
  tide_quota_leave(b);
  ledger_end();
}

T_TEST(test_quota__shares_change_at_run_time) {
  tide_quota* const a = member_join(ledger_path(), 10 * MIB, TIDE_NO_LIMIT);
  tide_quota_shares shares = TIDE_QUOTA_SHARES_INIT;
  shares.set = TIDE_QUOTA_SET_LIMIT | TIDE_QUOTA_SET_PRIORITY;
  shares.limit_bytes = 20 * MIB;
  shares.priority = 5;
  T_OK(tide_quota_take(a, 15 * MIB));
  T_OK(tide_quota_set_shares(ledger_path(), getpid(), &shares));
  T_STATUS(tide_quota_take(a, 6 * MIB), TIDE_ERR_LIMIT);
  T_OK(tide_quota_take(a, 5 * MIB));
  T_EQ(ledger_look(ledger_path()).members[0].priority, 5);
  T_EQ(ledger_look(ledger_path()).members[0].guarantee_bytes, 10 * MIB);
  shares.set = TIDE_QUOTA_SET_GUARANTEE;
  shares.guarantee_bytes = 21 * MIB;
  T_STATUS(tide_quota_set_shares(ledger_path(), getpid(), &shares), TIDE_ERR_ARGUMENT);  // above the limit
  shares.set |= TIDE_QUOTA_SET_LIMIT;
  shares.limit_bytes = TIDE_NO_LIMIT;
  shares.guarantee_bytes = 101 * MIB;
  T_STATUS(tide_quota_set_shares(ledger_path(), getpid(), &shares), TIDE_ERR_LIMIT);
  shares.guarantee_bytes = 90 * MIB;
  T_OK(tide_quota_set_shares(ledger_path(), getpid(), &shares));
  T_STATUS(tide_quota_set_shares(ledger_path(), 1, &shares), TIDE_ERR_HANDLE);
  T_STATUS(tide_quota_set_shares(ledger_path(), 0, &shares), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_quota_set_total(ledger_path(), 89 * MIB), TIDE_ERR_LIMIT);
  T_OK(tide_quota_set_total(ledger_path(), 200 * MIB));
  T_OK(tide_quota_take(a, 180 * MIB));
  T_OK(tide_quota_set_total(ledger_path(), 120 * MIB));  // below what is held: nothing is taken away
  T_STATUS(tide_quota_take(a, 1), TIDE_ERR_LIMIT);
  T_EQ(ledger_look(ledger_path()).ledger.held_bytes, 200 * MIB);
  tide_quota_leave(a);
  ledger_end();
}

T_TEST(test_quota__ledgers_are_made_and_removed) {
  T_OK(tide_quota_make(ledger_path(), 5 * MIB));
  T_STATUS(tide_quota_make(ledger_path(), 5 * MIB), TIDE_ERR_STATE);
  T_EQ(tide_last_error()->native, EEXIST);
  tide_quota* const a = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  T_EQ(ledger_look(ledger_path()).ledger.total_bytes, 5 * MIB);  // it keeps its total
  T_STATUS(tide_quota_remove(ledger_path()), TIDE_ERR_STATE);
  T_EQ(tide_last_error()->native, EBUSY);
  tide_quota_leave(a);
  T_OK(tide_quota_remove(ledger_path()));
  T_STATUS(tide_quota_remove(ledger_path()), TIDE_ERR_STATE);
  T_STATUS(tide_quota_set_total(ledger_path(), MIB), TIDE_ERR_STATE);
  T_EQ(tide_last_error()->native, ENOENT);
  ledger_end();
}

T_TEST(test_quota__a_full_ledger_takes_no_member) {
  tide_quota_options options = member_options(ledger_path());
  tide_quota* all[TIDE_QUOTA_MEMBERS];
  tide_quota* extra = NULL;
  for (int i = 0; i < TIDE_QUOTA_MEMBERS; ++i) all[i] = member_join(ledger_path(), MIB, TIDE_NO_LIMIT);
  T_STATUS(tide_quota_join(&options, &extra), TIDE_ERR_LIMIT);
  tide_quota_leave(all[17]);
  T_OK(tide_quota_join(&options, &extra));
  all[17] = extra;
  for (int i = 0; i < TIDE_QUOTA_MEMBERS; ++i) tide_quota_leave(all[i]);
  ledger_end();
}

T_TEST(test_quota__wrong_arguments_are_refused) {
  tide_quota_options options = member_options(ledger_path());
  tide_quota* quota = NULL;
  T_STATUS(tide_quota_join(NULL, &quota), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_quota_join(&options, NULL), TIDE_ERR_ARGUMENT);
  options.priority = TIDE_QUOTA_PRIORITY + 1;
  T_STATUS(tide_quota_join(&options, &quota), TIDE_ERR_ARGUMENT);
  options = member_options(ledger_path());
  options.limit_bytes = 5;
  options.guarantee_bytes = 6;
  T_STATUS(tide_quota_join(&options, &quota), TIDE_ERR_ARGUMENT);
  options = member_options(NULL);
  T_STATUS(tide_quota_join(&options, &quota), TIDE_ERR_ARGUMENT);
  static const char* const names[] = { "", "a/b", "..x y", "/", "/tmp/" };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    options = member_options(names[i]);
    T_STATUS(tide_quota_join(&options, &quota), TIDE_ERR_ARGUMENT);
  }
  options = member_options(ledger_path());
  options.total_bytes = 0;  // there is no such ledger
  T_STATUS(tide_quota_join(&options, &quota), TIDE_ERR_STATE);
  T_EQ(tide_last_error()->native, ENOENT);
  T_STATUS(tide_quota_take(NULL, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_quota_give(NULL, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_quota_read(ledger_path(), NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_quota_make(ledger_path(), 0), TIDE_ERR_ARGUMENT);
  tide_quota_leave(NULL);
  tide_quota_poll(NULL);
  T_EQ(tide_quota_room(NULL), 0);
  quota = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  T_STATUS(tide_quota_take(quota, UINT64_MAX), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_quota_take(quota, TIDE_QUOTA_MOST_BYTES), TIDE_ERR_LIMIT);
  tide_quota_leave(quota);
  ledger_end();
}

// The memory of a child belongs to its parent. The child does not keep the parent's slot locked.
T_TEST(test_quota__a_child_is_no_member_until_it_joins) {
  tide_quota* const a = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  T_OK(tide_quota_take(a, 60 * MIB));
  int ready[2];
  int done[2];
  char byte = 0;
  T_EQ(pipe(ready), 0);
  T_EQ(pipe(done), 0);
  const pid_t child = fork();
  if (child == 0) {
    (void)close(done[1]);
    T_STATUS(tide_quota_take(a, 1), TIDE_ERR_STATE);
    T_STATUS(tide_quota_give(a, 1), TIDE_ERR_STATE);
    tide_quota_poll(a);
    T_EQ(tide_quota_room(a), 0);
    tide_quota_leave(a);
    tide_quota* const own = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
    T_STATUS(tide_quota_take(own, 41 * MIB), TIDE_ERR_NO_MEMORY);
    T_OK(tide_quota_take(own, 40 * MIB));
    T_EQ(write(ready[1], "x", 1), 1);
    (void)!read(done[0], &byte, 1);
    T_OK(tide_quota_take(own, 60 * MIB));  // the parent has left
    T_EQ(ledger_look(ledger_path()).count, 1);
    tide_quota_leave(own);
    _exit(0);
  }
  int status = 0;
  T_EQ(read(ready[0], &byte, 1), 1);
  T_EQ(ledger_look(ledger_path()).count, 2);
  tide_quota_leave(a);
  (void)close(done[1]);
  T_EQ(waitpid(child, &status, 0), child);
  T_EQ(status, 0);
  T_EQ(ledger_look(ledger_path()).count, 0);
  ledger_end();
}

// Threads of one member, and several members, take and give at the same time.
typedef struct crowd {
  tide_quota* quotas[4];
  uint64_t live;  // bytes that all threads hold; checked by all
  uint64_t largest;
} crowd;
typedef struct crowd_thread {
  crowd* crowd;
  uint64_t index;
  pthread_t thread;
} crowd_thread;

static void* crowd_run(void* argument) {
  const crowd_thread* const own = argument;
  crowd* const all = own->crowd;
  tide_quota* const quota = all->quotas[own->index % 4];
  t_rng rng = t_rng_new(own->index);
  for (size_t i = 0; i < t_scaled(4000); ++i) {
    const bool is_large = t_rng_below(&rng, 4) != 0;  // two of these do not fit
    const uint64_t bytes = (is_large ? 51 * MIB : 1) + t_rng_below(&rng, 40 * MIB);
    if (tide_quota_take(quota, bytes) != TIDE_OK) continue;
    const uint64_t live = __atomic_add_fetch(&all->live, bytes, __ATOMIC_SEQ_CST);
    T_LE(live, 100 * MIB);
    (void)__atomic_sub_fetch(&all->live, bytes, __ATOMIC_SEQ_CST);
    T_OK(tide_quota_give(quota, bytes));
  }
  return NULL;
}

T_TEST(test_quota__threads_never_exceed_the_total) {
  crowd all = { .live = 0 };
  crowd_thread threads[8];
  for (int i = 0; i < 4; ++i) all.quotas[i] = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  for (uint64_t i = 0; i < 8; ++i) {
    threads[i] = (crowd_thread){ .crowd = &all, .index = i };
    t_thread_start(&threads[i].thread, crowd_run, &threads[i]);
  }
  for (int i = 0; i < 8; ++i) t_thread_join(threads[i].thread);
  T_EQ(ledger_look(ledger_path()).ledger.held_bytes, 0);
  for (int i = 0; i < 4; ++i) tide_quota_leave(all.quotas[i]);
  ledger_end();
}
