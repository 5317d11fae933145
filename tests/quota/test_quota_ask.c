// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Members that need more than is free, and those that they ask.
#define T_THREADS
#include "ledgers.h"

#define SECOND ((uint64_t)1000000000)
#define LONG_NS (120 * SECOND)  // nobody waits so long; it only ends a test that hangs

// A member that frees what it is asked for, as far as it has idle memory and memory that can be parked.
typedef struct giver {
  tide_quota* quota;
  uint64_t idle_bytes;
  uint64_t parkable_bytes;
  uint64_t trims;  // requests of each step; read by other threads
  uint64_t parks;
  uint64_t orders;  // requests of nobody: a limit or the total was lowered
  tide_quota_ask last;
  uint64_t turn;  // when it was asked first
} giver;

static uint64_t turns;

static uint64_t counted(const uint64_t* value) { return __atomic_load_n(value, __ATOMIC_SEQ_CST); }
static void count(uint64_t* value) { (void)__atomic_add_fetch(value, 1, __ATOMIC_SEQ_CST); }

static uint64_t part_free(uint64_t* bytes, uint64_t most) {
  const uint64_t freed = *bytes < most ? *bytes : most;
  *bytes -= freed;
  return freed;
}

static void giver_answer(void* user, const tide_quota_ask* ask) {
  giver* const it = user;
  uint64_t freed = part_free(&it->idle_bytes, ask->bytes);
  if (ask->step == TIDE_QUOTA_PARK) freed += part_free(&it->parkable_bytes, ask->bytes - freed);
  it->last = *ask;
  if (it->turn == 0) it->turn = __atomic_add_fetch(&turns, 1, __ATOMIC_SEQ_CST);
  if (ask->pid == 0) count(&it->orders);
  count(ask->step == TIDE_QUOTA_PARK ? &it->parks : &it->trims);  // before the one that asks goes on
  T_OK(tide_quota_give(it->quota, freed));
}

static void giver_join(giver* it, int32_t priority, bool has_helper, uint64_t bytes) {
  tide_quota_options options = member_options(ledger_path());
  options.priority = priority;
  options.has_helper = has_helper;
  options.on_ask = giver_answer;
  options.user = it;
  options.name = "giver";
  T_OK(tide_quota_join(&options, &it->quota));
  T_OK(tide_quota_take(it->quota, bytes));
}

static tide_quota* asker_join(int32_t priority, uint64_t wait_ns) {
  tide_quota_options options = member_options(ledger_path());
  tide_quota* quota = NULL;
  options.priority = priority;
  options.wait_ns = wait_ns;
  options.name = "asker";
  T_OK(tide_quota_join(&options, &quota));
  return quota;
}

// A thread that takes.
typedef struct taker {
  tide_quota* quota;
  uint64_t bytes;
  tide_status status;
  pthread_t thread;
  uint64_t is_done;
} taker;

static void* taker_run(void* argument) {
  taker* const it = argument;
  it->status = tide_quota_take(it->quota, it->bytes);
  count(&it->is_done);
  return NULL;
}

static void taker_start(taker* it, tide_quota* quota, uint64_t bytes) {
  *it = (taker){ .quota = quota, .bytes = bytes };
  t_thread_start(&it->thread, taker_run, it);
}

static uint64_t wanted_of(uint32_t index) { return ledger_look(ledger_path()).members[index].wanted_bytes; }

T_TEST(test_ask__a_helper_frees_idle_memory_at_once) {
  giver a = { .idle_bytes = 50 * MIB };
  giver_join(&a, 0, true, 90 * MIB);
  tide_quota* const b = asker_join(3, LONG_NS);
  T_OK(tide_quota_take(b, 40 * MIB));
  T_EQ(counted(&a.trims), 1);
  T_EQ(counted(&a.parks), 0);
  T_EQ(a.last.bytes, 30 * MIB);
  T_EQ(a.last.pid, getpid());
  T_EQ(a.last.priority, 3);
  T_STR_EQ(a.last.name, "asker");
  T_WAIT(ledger_look(ledger_path()).members[0].given_bytes == 30 * MIB);  // counted after the answer
  const ledger_view view = ledger_look(ledger_path());
  T_EQ(view.members[1].num_waits, 1);
  T_EQ(view.ledger.held_bytes, 100 * MIB);
  tide_quota_leave(b);
  tide_quota_leave(a.quota);
  ledger_end();
}

T_TEST(test_ask__parking_follows_trimming) {
  giver a = { .idle_bytes = 10 * MIB, .parkable_bytes = 40 * MIB };
  giver_join(&a, 0, true, 100 * MIB);
  tide_quota* const b = asker_join(0, LONG_NS);
  T_OK(tide_quota_take(b, 30 * MIB));
  T_EQ(counted(&a.trims), 1);
  T_EQ(counted(&a.parks), 1);
  T_EQ(a.last.bytes, 20 * MIB);
  tide_quota_leave(b);
  tide_quota_leave(a.quota);
  ledger_end();
}

// The asker has a lower priority, so nothing in use moves for it.
T_TEST(test_ask__higher_priorities_do_not_park) {
  giver a = { .idle_bytes = 10 * MIB, .parkable_bytes = 40 * MIB };
  giver_join(&a, 1, true, 100 * MIB);
  tide_quota* const b = asker_join(0, 2 * SECOND);
  T_STATUS(tide_quota_take(b, 30 * MIB), TIDE_ERR_NO_MEMORY);
  T_EQ(counted(&a.parks), 0);
  T_LE(1, counted(&a.trims));
  T_OK(tide_quota_take(b, 10 * MIB));
  tide_quota_leave(b);
  tide_quota_leave(a.quota);
  ledger_end();
}

T_TEST(test_ask__the_lowest_priority_is_asked_first) {
  giver all[3] = { { .idle_bytes = 30 * MIB }, { .idle_bytes = 30 * MIB }, { .idle_bytes = 30 * MIB } };
  static const int32_t priorities[] = { 5, -5, 0 };
  for (int i = 0; i < 3; ++i) giver_join(&all[i], priorities[i], true, 30 * MIB);
  tide_quota* const b = asker_join(0, LONG_NS);
  T_OK(tide_quota_take(b, 20 * MIB));  // 10 are free
  T_EQ(counted(&all[1].trims), 1);
  T_EQ(counted(&all[0].trims) + counted(&all[2].trims), 0);
  T_OK(tide_quota_take(b, 60 * MIB));
  T_LE(3, counted(&all[0].trims) + counted(&all[1].trims) + counted(&all[2].trims));
  T_EQ(all[1].turn, 1);
  T_EQ(all[2].turn, 2);
  T_EQ(all[0].turn, 3);
  tide_quota_leave(b);
  for (int i = 0; i < 3; ++i) tide_quota_leave(all[i].quota);
  ledger_end();
}

T_TEST(test_ask__nobody_goes_below_its_guarantee) {
  giver a = { .idle_bytes = 100 * MIB };
  giver_join(&a, 0, true, 100 * MIB);
  tide_quota_shares shares = TIDE_QUOTA_SHARES_INIT;
  shares.set = TIDE_QUOTA_SET_GUARANTEE;
  shares.guarantee_bytes = 80 * MIB;
  T_OK(tide_quota_set_shares(ledger_path(), getpid(), &shares));
  tide_quota* const b = asker_join(10, LONG_NS);
  T_OK(tide_quota_take(b, 20 * MIB));
  T_EQ(counted(&a.trims), 1);
  T_EQ(a.last.bytes, 20 * MIB);
  T_STATUS(tide_quota_take(b, 1), TIDE_ERR_LIMIT);
  T_EQ(ledger_look(ledger_path()).members[0].held_bytes, 80 * MIB);
  tide_quota_leave(b);
  tide_quota_leave(a.quota);
  ledger_end();
}

// Without a helper a member answers in its next call.
static const char* const calls[] = { "take", "give", "poll", NULL };
T_TEST_OVER(test_ask__without_a_helper_the_next_call_answers, calls) {
  giver a = { .idle_bytes = 50 * MIB };
  taker thread;
  giver_join(&a, 0, false, 100 * MIB);
  tide_quota* const b = asker_join(0, LONG_NS);
  taker_start(&thread, b, 40 * MIB);
  T_WAIT(wanted_of(1) == 40 * MIB);
  while (counted(&thread.is_done) == 0) {
    if (strcmp(t_variant(), "take") == 0) T_OK(tide_quota_take(a.quota, 0));
    else if (strcmp(t_variant(), "give") == 0) T_OK(tide_quota_give(a.quota, 0));
    else tide_quota_poll(a.quota);
    t_sleep_us(100);
  }
  t_thread_join(thread.thread);
  T_OK(thread.status);
  T_LE(1, counted(&a.trims));
  T_EQ(wanted_of(1), 0);
  tide_quota_leave(b);
  tide_quota_leave(a.quota);
  ledger_end();
}

// A gives nothing and never answers; B is asked next although A is of a lower priority.
T_TEST(test_ask__a_stuck_member_is_passed_over) {
  giver stuck = { .idle_bytes = 50 * MIB };
  giver b = { .idle_bytes = 50 * MIB };
  giver_join(&stuck, -9, false, 50 * MIB);
  giver_join(&b, 0, true, 50 * MIB);
  tide_quota* const c = asker_join(0, 8 * SECOND);
  T_OK(tide_quota_take(c, 40 * MIB));
  T_EQ(counted(&stuck.trims), 0);
  T_LE(1, counted(&b.trims));
  tide_quota_leave(c);
  tide_quota_leave(b.quota);
  tide_quota_leave(stuck.quota);
  ledger_end();
}

T_TEST(test_ask__two_members_that_wait_for_each_other_get_on) {
  giver a = { .idle_bytes = 20 * MIB };
  giver b = { .idle_bytes = 20 * MIB };
  taker threads[2];
  tide_quota_options options = member_options(ledger_path());
  options.wait_ns = LONG_NS;
  options.on_ask = giver_answer;
  options.user = &a;
  T_OK(tide_quota_join(&options, &a.quota));
  options.user = &b;
  T_OK(tide_quota_join(&options, &b.quota));
  T_OK(tide_quota_take(a.quota, 50 * MIB));
  T_OK(tide_quota_take(b.quota, 50 * MIB));
  taker_start(&threads[0], a.quota, 10 * MIB);
  taker_start(&threads[1], b.quota, 10 * MIB);
  T_WAIT(counted(&threads[0].is_done) + counted(&threads[1].is_done) > 0);  // they answer while they wait
  T_WAIT((tide_quota_poll(a.quota), tide_quota_poll(b.quota),
          counted(&threads[0].is_done) + counted(&threads[1].is_done) == 2));
  for (int i = 0; i < 2; ++i) {
    t_thread_join(threads[i].thread);
    T_OK(threads[i].status);
  }
  tide_quota_leave(a.quota);
  tide_quota_leave(b.quota);
  ledger_end();
}

// The memory that comes free is left for the one that waits, although another wants less.
T_TEST(test_ask__who_waits_goes_before_who_comes_later) {
  tide_quota* const a = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  tide_quota* const later = member_join(ledger_path(), 10 * MIB, TIDE_NO_LIMIT);
  tide_quota* const waits = asker_join(0, LONG_NS);
  taker thread;
  T_OK(tide_quota_take(a, 90 * MIB));
  taker_start(&thread, waits, 60 * MIB);
  T_WAIT(wanted_of(2) == 60 * MIB);
  T_OK(tide_quota_give(a, 50 * MIB));
  T_STATUS(tide_quota_take(later, 20 * MIB), TIDE_ERR_NO_MEMORY);
  T_OK(tide_quota_take(later, 10 * MIB));  // its guarantee
  T_OK(tide_quota_give(a, 10 * MIB));
  t_thread_join(thread.thread);
  T_OK(thread.status);
  T_EQ(ledger_look(ledger_path()).ledger.held_bytes, 100 * MIB);
  tide_quota_leave(a);
  tide_quota_leave(later);
  tide_quota_leave(waits);
  ledger_end();
}

// Several threads of one member wait at the same time.
T_TEST(test_ask__threads_of_a_member_wait_together) {
  giver a = { .idle_bytes = 100 * MIB };
  taker threads[6];
  giver_join(&a, 0, true, 100 * MIB);
  tide_quota* const b = asker_join(0, LONG_NS);
  for (int i = 0; i < 6; ++i) taker_start(&threads[i], b, 10 * MIB);
  for (int i = 0; i < 6; ++i) {
    t_thread_join(threads[i].thread);
    T_OK(threads[i].status);
  }
  const ledger_view view = ledger_look(ledger_path());
  T_EQ(view.members[1].held_bytes, 60 * MIB);
  T_EQ(view.members[1].wanted_bytes, 0);
  tide_quota_leave(b);
  tide_quota_leave(a.quota);
  ledger_end();
}

static const char* const helpers[] = { "helper", "poll", NULL };
T_TEST_OVER(test_ask__lowered_limits_and_totals_make_members_give_way, helpers) {
  const bool has_helper = strcmp(t_variant(), "helper") == 0;
  giver a = { .idle_bytes = 5 * MIB, .parkable_bytes = 50 * MIB };
  giver_join(&a, 0, has_helper, 60 * MIB);
  tide_quota_shares shares = TIDE_QUOTA_SHARES_INIT;
  shares.set = TIDE_QUOTA_SET_LIMIT;
  shares.limit_bytes = 40 * MIB;
  T_OK(tide_quota_set_shares(ledger_path(), getpid(), &shares));
  T_WAIT((tide_quota_poll(a.quota), ledger_look(ledger_path()).ledger.held_bytes == 40 * MIB));
  T_LE(1, counted(&a.orders));
  T_EQ(counted(&a.trims), 0);
  T_OK(tide_quota_set_total(ledger_path(), 30 * MIB));
  T_WAIT((tide_quota_poll(a.quota), ledger_look(ledger_path()).ledger.held_bytes == 30 * MIB));
  tide_quota_leave(a.quota);
  ledger_end();
}
