// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Eight processes with random demand share a ledger. One after another is killed at a random moment and
// started again; others are stopped for a while. Each worker writes what it holds into memory of this test,
// which the ledger knows nothing about: after it took, and before it gives. The parent adds that up.
//
// TIDE_TEST_LEDGER_SECONDS=300 makes it last so long, with one kill a second.
#define T_THREADS
#include <sys/mman.h>

#include "ledgers.h"

#define WORKERS 8
#define BLOCKS 12
#define TOTAL (100 * MIB)
#define WAIT_NS ((uint64_t)50000000)
#define LATE_NS ((uint64_t)500000000)  // of a computer that does other things; a lost wake-up takes longer
#define PARENT_SLEEPS_US 50

// What a worker says about itself. It may be killed at any moment.
typedef struct account {
  uint64_t version;  // odd while it changes `held`
  uint64_t held;
  uint64_t stops;  // odd while it is stopped
  uint64_t takes;
  uint64_t refusals;
  uint64_t asks;  // that it answered
  uint64_t waits;
  uint64_t longest_ns;  // of a take, without the time in which it could not run
  uint64_t padding[8];
} account;

typedef struct area {
  account accounts[WORKERS];
  uint64_t is_ending;
} area;

static area* shared;

static uint64_t load(const uint64_t* at) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }
static void store(uint64_t* at, uint64_t value) { __atomic_store_n(at, value, __ATOMIC_SEQ_CST); }

// ---------------------------------------------------------------------------------------------------
// A worker

typedef struct worker {
  account* account;
  tide_quota* quota;
  pthread_mutex_t lock;  // guards the blocks: the helper frees them, too
  uint64_t blocks[BLOCKS];
  t_rng rng;
} worker;

static void held_set(account* it, uint64_t held) {
  store(&it->version, it->version + 1);
  store(&it->held, held);
  store(&it->version, it->version + 1);
}

// Frees a block: first the account, then the ledger.
static uint64_t block_free(worker* it, int index) {
  const uint64_t bytes = it->blocks[index];
  it->blocks[index] = 0;
  held_set(it->account, it->account->held - bytes);
  T_OK(tide_quota_give(it->quota, bytes));
  return bytes;
}

// A process that is asked frees whole blocks until it is enough.
static void worker_answer(void* user, const tide_quota_ask* ask) {
  worker* const it = user;
  uint64_t freed = 0;
  if (pthread_mutex_trylock(&it->lock) != 0) return;
  for (int i = 0; i < BLOCKS && freed < ask->bytes; ++i) {
    if (it->blocks[i] > 0 && (ask->step == TIDE_QUOTA_PARK || i % 2 == 0)) freed += block_free(it, i);
  }
  (void)pthread_mutex_unlock(&it->lock);
  store(&it->account->asks, it->account->asks + 1);
}

// How long this thread was ready to run and did not.
static uint64_t delay_ns(void) {
  char text[128] = "";
  const int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t count = read(file, text, sizeof text - 1);
  (void)close(file);
  const char* const blank = count > 0 ? strchr(text, ' ') : NULL;
  return blank != NULL ? strtoull(blank + 1, NULL, 10) : 0;
}

// Takes with the clock in hand. A stop by the parent does not count.
static tide_status take_timed(worker* it, uint64_t bytes) {
  const uint64_t stops = load(&it->account->stops);
  const uint64_t delay_before = delay_ns();
  const uint64_t begin = t_now_ns();
  const tide_status status = tide_quota_take(it->quota, bytes);
  const uint64_t wall = t_now_ns() - begin;
  const uint64_t delay = delay_ns() - delay_before;
  const uint64_t own = wall > delay ? wall - delay : 0;
  if (stops % 2 == 0 && load(&it->account->stops) == stops && own > it->account->longest_ns) {
    store(&it->account->longest_ns, own);
    if (own > WAIT_NS + LATE_NS)
      T_FAIL("a take lasted %llu us of its own time", (unsigned long long)(own / 1000));
  }
  return status;
}

static void worker_take(worker* it) {
  const bool is_large = t_rng_below(&it->rng, 8) == 0;
  const uint64_t bytes = 1 + t_rng_below(&it->rng, is_large ? 70 * MIB : 20 * MIB);
  int index = 0;
  (void)pthread_mutex_lock(&it->lock);
  while (index < BLOCKS && it->blocks[index] != 0) ++index;
  (void)pthread_mutex_unlock(&it->lock);
  if (index == BLOCKS) return;
  const tide_status status = take_timed(it, bytes);  // the lock of the blocks is not held: others may ask
  store(&it->account->takes, it->account->takes + 1);
  if (status == TIDE_ERR_NO_MEMORY || status == TIDE_ERR_LIMIT) {
    store(&it->account->refusals, it->account->refusals + 1);
    return;
  }
  T_OK(status);
  (void)pthread_mutex_lock(&it->lock);
  it->blocks[index] = bytes;
  held_set(it->account, it->account->held + bytes);
  (void)pthread_mutex_unlock(&it->lock);
}

static void worker_give(worker* it) {
  const int index = (int)t_rng_below(&it->rng, BLOCKS);
  (void)pthread_mutex_lock(&it->lock);
  if (it->blocks[index] > 0) (void)block_free(it, index);
  (void)pthread_mutex_unlock(&it->lock);
}

static void worker_join(worker* it, uint64_t index) {
  tide_quota_options options = member_options(ledger_path());
  options.total_bytes = TOTAL;
  options.wait_ns = WAIT_NS;
  options.priority = (int32_t)(index % 3);
  options.guarantee_bytes = index % 2 == 0 ? 8 * MIB : 0;
  options.limit_bytes = index == 3 ? 50 * MIB : TIDE_NO_LIMIT;
  options.has_helper = index % 4 < 2;
  options.on_ask = worker_answer;
  options.user = it;
  T_OK(tide_quota_join(&options, &it->quota));
}

__attribute__((noreturn)) static void worker_run(uint64_t index, uint64_t life) {
  worker it = { .account = &shared->accounts[index], .rng = t_rng_new(index + life * WORKERS) };
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)pthread_mutex_init(&it.lock, NULL);
  worker_join(&it, index);
  while (load(&shared->is_ending) == 0) {
    if (t_rng_below(&it.rng, 5) < 2) worker_take(&it);
    else worker_give(&it);
    if (t_rng_below(&it.rng, 4) == 0) t_sleep_us(t_rng_below(&it.rng, 400));
  }
  (void)pthread_mutex_lock(&it.lock);
  held_set(it.account, 0);
  (void)pthread_mutex_unlock(&it.lock);
  tide_quota_leave(it.quota);
  _exit(0);
}

// ---------------------------------------------------------------------------------------------------
// The parent

typedef struct keeper {
  pid_t pids[WORKERS];
  uint64_t lives;
  t_rng rng;
  uint64_t kills;
  uint64_t stops;
  uint64_t checks;
  uint64_t largest;  // sum that was seen
} keeper;

static void worker_start(keeper* it, int index) {
  account* const fresh = &shared->accounts[index];
  store(&fresh->version, 0);
  store(&fresh->held, 0);
  store(&fresh->stops, 0);
  const uint64_t life = ++it->lives;
  const pid_t pid = fork();
  T_LE(0, pid + 1);
  if (pid == 0) worker_run((uint64_t)index, life);
  it->pids[index] = pid;
}

static void worker_kill(keeper* it, int index) {
  int status = 0;
  T_EQ(kill(it->pids[index], SIGKILL), 0);
  T_EQ(waitpid(it->pids[index], &status, 0), it->pids[index]);
  T_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  it->kills++;
  worker_start(it, index);
}

static void worker_stop(keeper* it, int index) {
  uint64_t* const stops = &shared->accounts[index].stops;
  if (*stops % 2 == 0) it->stops++;
  store(stops, *stops + 1);
  T_EQ(kill(it->pids[index], *stops % 2 != 0 ? SIGSTOP : SIGCONT), 0);
}

// A sum of one instant: no worker changed anything while all were read. A worker that was stopped or killed
// in the middle of a change holds at least what it said before.
static void sum_check(keeper* it) {
  uint64_t versions[WORKERS];
  uint64_t sum = 0;
  for (int i = 0; i < WORKERS; ++i) {
    versions[i] = load(&shared->accounts[i].version);
    sum += load(&shared->accounts[i].held);
  }
  for (int i = 0; i < WORKERS; ++i) {
    if (versions[i] % 2 != 0 || load(&shared->accounts[i].version) != versions[i]) return;
  }
  it->checks++;
  if (sum > it->largest) it->largest = sum;
  T_LE(sum, TOTAL);
}

static void run_for(keeper* it, uint64_t run_ns, uint64_t kill_ns) {
  const uint64_t end = t_now_ns() + run_ns;
  uint64_t next = t_now_ns() + t_rng_below(&it->rng, 2 * kill_ns);
  while (t_now_ns() < end) {
    for (int i = 0; i < 20; ++i) sum_check(it);
    if (t_now_ns() >= next) {
      const int index = (int)t_rng_below(&it->rng, WORKERS);
      if (t_rng_below(&it->rng, 4) == 0) worker_stop(it, (int)t_rng_below(&it->rng, WORKERS));
      worker_kill(it, index);
      next = t_now_ns() + t_rng_below(&it->rng, 2 * kill_ns);
    }
    t_sleep_us(PARENT_SLEEPS_US);
  }
}

static void all_end(keeper* it) {
  store(&shared->is_ending, 1);
  for (int i = 0; i < WORKERS; ++i) {
    int status = 0;
    T_EQ(kill(it->pids[i], SIGCONT), 0);
    T_EQ(waitpid(it->pids[i], &status, 0), it->pids[i]);
    if (status != 0) T_FAIL("worker %d ended with status 0x%x", i, (unsigned)status);
  }
}

static void figures_print(const keeper* it) {
  account sum = { .version = 0 };
  for (int i = 0; i < WORKERS; ++i) {
    const account* const one = &shared->accounts[i];
    sum.takes += one->takes;
    sum.refusals += one->refusals;
    sum.asks += one->asks;
    if (one->longest_ns > sum.longest_ns) sum.longest_ns = one->longest_ns;
  }
  (void)printf("     %llu kills, %llu stops, %llu sums checked, the largest %.3f of the total; %llu takes, "
               "%llu refused, %llu answers, the longest take %.1f ms (limit %.0f ms)\n",
               (unsigned long long)it->kills, (unsigned long long)it->stops, (unsigned long long)it->checks,
               (double)it->largest / (double)TOTAL, (unsigned long long)sum.takes,
               (unsigned long long)sum.refusals, (unsigned long long)sum.asks, (double)sum.longest_ns * 1e-6,
               (double)WAIT_NS * 1e-6);
}

// Memory that all processes of the test share: a file without a name.
static area* area_new(void) {
  char path[LEDGER_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s/accounts", ledger_folder());
  const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  T_EQ(ftruncate(file, (off_t)sizeof(area)), 0);
  T_EQ(unlink(path), 0);
  void* const memory = mmap(NULL, sizeof(area), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  T_CHECK(memory != MAP_FAILED);
  (void)close(file);
  return memory;
}

// All is free at the end: one member can have the total.
static void nothing_is_left(void) {
  T_EQ(ledger_look(ledger_path()).count, 0);
  tide_quota* const last = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  T_OK(tide_quota_take(last, TOTAL));
  tide_quota_leave(last);
}

T_TEST(test_processes__killed_ones_give_everything_back) {
  keeper it = { .rng = t_rng_new(77) };
  const double seconds = t_env_number("TIDE_TEST_LEDGER_SECONDS", 0);
  shared = area_new();
  for (int i = 0; i < WORKERS; ++i) worker_start(&it, i);
  if (seconds > 0) run_for(&it, (uint64_t)(seconds * 1e9), 1000000000);
  else run_for(&it, t_scaled(3000) * 1000000, 20000000);
  figures_print(&it);
  T_LE(1, it.kills);
  T_LE(1, it.checks);
  all_end(&it);
  nothing_is_left();
  ledger_end();
}

// A process that was killed while it held everything.
T_TEST(test_processes__a_dead_member_holds_nothing) {
  tide_quota* const a = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  int ready[2];
  char byte = 0;
  T_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    tide_quota* const own = member_join(ledger_path(), 20 * MIB, TIDE_NO_LIMIT);
    T_OK(tide_quota_take(own, 100 * MIB));
    T_EQ(write(ready[1], "x", 1), 1);
    for (;;) (void)pause();
  }
  T_EQ(read(ready[0], &byte, 1), 1);
  T_STATUS(tide_quota_take(a, 1), TIDE_ERR_NO_MEMORY);
  T_EQ(kill(child, SIGKILL), 0);
  T_EQ(waitpid(child, NULL, 0), child);
  T_EQ(ledger_look(ledger_path()).count, 1);
  T_OK(tide_quota_take(a, 100 * MIB));
  tide_quota_leave(a);
  ledger_end();
}

// A process that was stopped while it waits keeps no free memory from others.
T_TEST(test_processes__a_stopped_waiter_is_passed_over) {
  tide_quota* const a = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  T_OK(tide_quota_take(a, 80 * MIB));
  const pid_t child = fork();
  if (child == 0) {
    tide_quota_options options = member_options(ledger_path());
    tide_quota* own = NULL;
    options.wait_ns = (uint64_t)3600 * 1000000000;
    T_OK(tide_quota_join(&options, &own));
    T_OK(tide_quota_take(own, 30 * MIB));
    _exit(0);
  }
  T_WAIT(ledger_look(ledger_path()).count == 2 && ledger_look(ledger_path()).members[1].wanted_bytes > 0);
  T_STATUS(tide_quota_take(a, MIB), TIDE_ERR_NO_MEMORY);  // 20 are free, and kept for the child
  T_EQ(kill(child, SIGSTOP), 0);
  bool is_taken = false;
  T_WAIT(is_taken || (is_taken = tide_quota_take(a, MIB) == TIDE_OK));
  T_EQ(kill(child, SIGCONT), 0);
  T_OK(tide_quota_give(a, 11 * MIB));
  int status = 0;
  T_EQ(waitpid(child, &status, 0), child);
  T_EQ(status, 0);
  tide_quota_leave(a);
  ledger_end();
}

// A waiter claims nothing that it cannot have: wherever it is stopped, those that go before it may have it.
T_TEST(test_processes__a_waiter_claims_nothing) {
  tide_quota_options options = member_options(ledger_path());
  tide_quota* a = NULL;
  options.priority = 1;
  T_OK(tide_quota_join(&options, &a));
  T_OK(tide_quota_take(a, 80 * MIB));
  const pid_t child = fork();
  if (child == 0) {
    tide_quota_options own_options = member_options(ledger_path());
    tide_quota* own = NULL;
    own_options.wait_ns = (uint64_t)3600 * 1000000000;
    T_OK(tide_quota_join(&own_options, &own));
    T_OK(tide_quota_take(own, 30 * MIB));
    _exit(1);
  }
  T_WAIT(ledger_look(ledger_path()).count == 2 && ledger_look(ledger_path()).members[1].wanted_bytes > 0);
  t_rng rng = t_rng_new(78);
  for (uint64_t i = 0; i < t_scaled(2000); ++i) {
    T_OK(tide_quota_give(a, MIB));  // wakes the child
    for (volatile uint64_t spins = t_rng_below(&rng, 20000); spins > 0; spins = spins - 1) continue;
    T_EQ(kill(child, SIGSTOP), 0);
    T_EQ(waitpid(child, NULL, WUNTRACED), child);
    T_OK(tide_quota_take_now(a, 21 * MIB));
    T_OK(tide_quota_give(a, 20 * MIB));
    T_EQ(kill(child, SIGCONT), 0);
  }
  T_EQ(kill(child, SIGKILL), 0);
  T_EQ(waitpid(child, NULL, 0), child);
  tide_quota_leave(a);
  ledger_end();
}

// A member that waits notices the death of another, which wakes nobody.
T_TEST(test_processes__a_waiting_member_gets_what_a_dead_one_held) {
  tide_quota_options options = member_options(ledger_path());
  tide_quota* a = NULL;
  int ready[2];
  char byte = 0;
  options.wait_ns = (uint64_t)120 * 1000000000;
  T_OK(tide_quota_join(&options, &a));
  T_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    tide_quota* const own = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
    T_OK(tide_quota_take(own, 100 * MIB));
    T_EQ(write(ready[1], "x", 1), 1);
    while (ledger_look(ledger_path()).members[0].wanted_bytes == 0) t_sleep_us(100);
    (void)raise(SIGKILL);
  }
  T_EQ(read(ready[0], &byte, 1), 1);
  T_OK(tide_quota_take(a, 100 * MIB));
  T_EQ(waitpid(child, NULL, 0), child);
  tide_quota_leave(a);
  ledger_end();
}
