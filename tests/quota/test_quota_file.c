// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Files that are no ledgers, or were damaged: refused or repaired, never followed. Where a test patches a
// file, it does so by the offsets of docs/ledger.md, not by the headers of the library.
#define T_THREADS
#include <sys/mman.h>

#include "base/sys.h"
#include "ledgers.h"
#include "quota/format.h"

#define VERSION_AT 8
#define SLOTS_AT 1024
#define SLOT_BYTES 256

static tide_status join_once(const char* path) {
  tide_quota_options options = member_options(path);
  tide_quota* quota = NULL;
  const tide_status status = tide_quota_join(&options, &quota);
  T_CHECK((quota != NULL) == (status == TIDE_OK));
  tide_quota_leave(quota);
  return status;
}

static void file_write(const char* path, const void* bytes, size_t count, off_t offset) {
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
  T_CHECK(file >= 0);
  T_EQ(pwrite(file, bytes, count, offset), count);
  (void)close(file);
}

static void file_make(const char* path) { T_OK(tide_quota_make(path, 100 * MIB)); }

// All calls refuse the file, with the same status and a text that says why.
static void is_refused(const char* path, tide_status status, const char* why) {
  ledger_view view = { .count = 0 };
  T_STATUS(join_once(path), status);
  T_STR_HAS(tide_last_error()->text, why);
  T_STATUS(tide_quota_read(path, ledger_note, &view), status);
  T_STR_HAS(tide_last_error()->text, why);
  T_STATUS(tide_quota_set_total(path, 200 * MIB), status);
  T_STR_HAS(tide_last_error()->text, why);
}

// ---------------------------------------------------------------------------------------------------
// Files of others

T_TEST(test_file__links_are_refused) {
  char target[LEDGER_PATH_BYTES];
  (void)snprintf(target, sizeof target, "%s/target", ledger_folder());
  file_make(target);
  T_EQ(symlink(target, ledger_path()), 0);
  is_refused(ledger_path(), TIDE_ERR_STATE, "be no links");
  T_EQ(tide_last_error()->native, ELOOP);
  T_EQ(unlink(target), 0);
  is_refused(ledger_path(), TIDE_ERR_STATE, "be no links");  // a link to nothing is not made a file
  T_NE(access(target, F_OK), 0);
  ledger_end();
}

T_TEST(test_file__a_folder_behind_a_link_is_refused) {
  char link[LEDGER_PATH_BYTES];
  char path[LEDGER_PATH_BYTES];
  (void)snprintf(link, sizeof link, "%s-link", ledger_folder());
  (void)snprintf(path, sizeof path, "%s-link/ledger", ledger_folder());
  T_EQ(symlink(ledger_folder(), link), 0);
  T_STATUS(join_once(path), TIDE_ERR_STATE);
  T_EQ(unlink(link), 0);
  ledger_end();
}

T_TEST(test_file__files_and_folders_that_are_open_to_others_are_refused) {
  file_make(ledger_path());
  T_EQ(chmod(ledger_path(), 0640), 0);
  is_refused(ledger_path(), TIDE_ERR_STATE, "closed to others");
  T_EQ(tide_last_error()->native, EACCES);
  T_EQ(chmod(ledger_path(), 0600), 0);
  T_OK(join_once(ledger_path()));
  T_EQ(chmod(ledger_folder(), 0755), 0);
  is_refused(ledger_path(), TIDE_ERR_STATE, "closed to others");
  T_EQ(chmod(ledger_folder(), 0700), 0);
  ledger_end();
}

T_TEST(test_file__files_and_folders_of_other_users_are_refused) {
  file_make(ledger_path());
  if (chown(ledger_path(), 12345, (gid_t)-1) != 0) t_skip("only root can give files away");
  is_refused(ledger_path(), TIDE_ERR_STATE, "must belong to this user");
  T_EQ(tide_last_error()->native, EPERM);
  T_EQ(chown(ledger_path(), geteuid(), (gid_t)-1), 0);
  T_EQ(chown(ledger_folder(), 12345, (gid_t)-1), 0);
  is_refused(ledger_path(), TIDE_ERR_STATE, "must belong to this user");
  T_EQ(chown(ledger_folder(), geteuid(), (gid_t)-1), 0);
  ledger_end();
}

T_TEST(test_file__what_is_no_file_is_refused) {
  T_EQ(mkfifo(ledger_path(), 0600), 0);
  is_refused(ledger_path(), TIDE_ERR_STATE, "cannot be used");
  T_EQ(unlink(ledger_path()), 0);
  T_EQ(mkdir(ledger_path(), 0700), 0);
  T_STATUS(join_once(ledger_path()), TIDE_ERR_STATE);
  T_EQ(rmdir(ledger_path()), 0);
  ledger_end();
}

// ---------------------------------------------------------------------------------------------------
// Files with other contents

T_TEST(test_file__another_version_is_refused_and_left_alone) {
  const uint32_t version = 2;
  uint32_t after = 0;
  file_make(ledger_path());
  file_write(ledger_path(), &version, sizeof version, VERSION_AT);
  is_refused(ledger_path(), TIDE_ERR_UNSUPPORTED, "has version 2");
  const int file = open(ledger_path(), O_RDONLY | O_CLOEXEC);
  T_EQ(pread(file, &after, sizeof after, VERSION_AT), sizeof after);
  T_EQ(after, 2);
  (void)close(file);
  ledger_end();
}

T_TEST(test_file__other_files_are_refused_and_left_alone) {
  static const char text[] = "id,lower,upper,size\nweights,0,9,4096\n";
  char after[sizeof text] = "";
  file_write(ledger_path(), text, sizeof text, 0);
  is_refused(ledger_path(), TIDE_ERR_FORMAT, "is not a ledger");
  const int file = open(ledger_path(), O_RDONLY | O_CLOEXEC);
  T_EQ(pread(file, after, sizeof after, 0), sizeof after);
  T_STR_EQ(after, text);
  (void)close(file);
  ledger_end();
}

// At every length. Nothing can be left of it, or all of it, for a file that is being made.
T_TEST(test_file__truncated_files_are_refused) {
  for (off_t bytes = FILE_BYTES - 1; bytes > 0; bytes -= bytes > 80 ? 97 : 1) {
    file_make(ledger_path());
    T_EQ(truncate(ledger_path(), bytes), 0);
    ledger_view view = { .count = 0 };
    T_STATUS(join_once(ledger_path()), TIDE_ERR_FORMAT);
    T_STATUS(tide_quota_read(ledger_path(), ledger_note, &view), TIDE_ERR_FORMAT);
    T_OK(tide_quota_remove(ledger_path()));
  }
  file_make(ledger_path());
  T_EQ(truncate(ledger_path(), FILE_BYTES + 1), 0);
  is_refused(ledger_path(), TIDE_ERR_FORMAT, "has 16385 bytes, not 16384");
  ledger_end();
}

T_TEST(test_file__a_file_whose_maker_died_is_made_again) {
  static const char nothing[FILE_BYTES];
  file_write(ledger_path(), nothing, sizeof nothing, 0);
  T_OK(join_once(ledger_path()));
  T_EQ(unlink(ledger_path()), 0);
  file_write(ledger_path(), nothing, 0, 0);
  T_OK(join_once(ledger_path()));
  T_EQ(ledger_look(ledger_path()).ledger.total_bytes, 100 * MIB);
  ledger_end();
}

// Every byte of the head counts.
T_TEST(test_file__a_damaged_head_is_refused) {
  for (off_t at = 0; at < 64; ++at) {
    uint8_t byte = 0;
    file_make(ledger_path());
    const int file = open(ledger_path(), O_RDWR | O_CLOEXEC);
    T_EQ(pread(file, &byte, 1, at), 1);
    byte ^= 0x10;
    T_EQ(pwrite(file, &byte, 1, at), 1);
    (void)close(file);
    const tide_status status = join_once(ledger_path());
    T_CHECK(status == TIDE_ERR_FORMAT || (status == TIDE_ERR_UNSUPPORTED && at / 4 == VERSION_AT / 4));
    T_OK(tide_quota_remove(ledger_path()));
  }
  ledger_end();
}

// ---------------------------------------------------------------------------------------------------
// Damage while there are members

typedef struct pair {
  tide_quota* a;  // holds 60 MiB of 100
  tide_quota* b;  // holds 30
  int file;
} pair;

static pair pair_new(void) {
  pair it = { .a = member_join(ledger_path(), 10 * MIB, 70 * MIB) };
  it.b = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  it.file = open(ledger_path(), O_RDWR | O_CLOEXEC);
  T_OK(tide_quota_take(it.a, 60 * MIB));
  T_OK(tide_quota_take(it.b, 30 * MIB));
  return it;
}

// Whatever the file says, 10 MiB are free. After a call of each member all is repaired.
static void pair_check(pair* it) {
  T_CHECK(tide_quota_take(it->b, 11 * MIB) != TIDE_OK);
  T_CHECK(tide_quota_take(it->a, 11 * MIB) != TIDE_OK);
  T_OK(tide_quota_give(it->b, 0));
  T_OK(tide_quota_take(it->b, 10 * MIB));
  T_OK(tide_quota_give(it->b, 10 * MIB));
  const ledger_view view = ledger_look(ledger_path());
  T_CHECK(!view.ledger.is_damaged);
  T_EQ(view.ledger.total_bytes, 100 * MIB);
  T_EQ(view.count, 2);
  T_EQ(view.members[0].held_bytes, 60 * MIB);
  T_EQ(view.members[0].guarantee_bytes, 10 * MIB);
  T_EQ(view.members[0].limit_bytes, 70 * MIB);
  T_EQ(view.members[1].held_bytes, 30 * MIB);
}

static void pair_free(pair* it) {
  (void)close(it->file);
  tide_quota_leave(it->a);
  tide_quota_leave(it->b);
  ledger_end();
}

// One byte after another, in the head and three slots.
T_TEST(test_file__every_damaged_byte_is_repaired) {
  pair it = pair_new();
  for (off_t at = 0; at < SLOTS_AT + 3 * SLOT_BYTES; ++at) {
    uint8_t byte = 0;
    T_EQ(pread(it.file, &byte, 1, at), 1);
    byte ^= (uint8_t)(1u << (at % 8));
    T_EQ(pwrite(it.file, &byte, 1, at), 1);
    pair_check(&it);
  }
  pair_free(&it);
}

T_TEST(test_file__random_damage_is_repaired) {
  pair it = pair_new();
  t_rng rng = t_rng_new(5);
  for (size_t i = 0; i < t_scaled_alone(2000); ++i) {
    uint8_t noise[256];
    const size_t count = 1 + t_rng_below(&rng, sizeof noise);
    for (size_t k = 0; k < count; ++k) noise[k] = (uint8_t)t_rng_next(&rng);
    T_EQ(pwrite(it.file, noise, count, (off_t)t_rng_below(&rng, FILE_BYTES - sizeof noise)), count);
    pair_check(&it);
  }
  pair_free(&it);
}

static const char* const wipes[] = { "zeros", "ones", "noise", "truncated", "removed", NULL };
T_TEST_OVER(test_file__a_whole_file_is_repaired, wipes) {
  static uint8_t bytes[FILE_BYTES];
  pair it = pair_new();
  t_rng rng = t_rng_new(6);
  for (size_t i = 0; i < 50; ++i) {
    const char* const how = t_variant();
    for (size_t k = 0; k < sizeof bytes; ++k)
      bytes[k] = (uint8_t)(*how == 'z' ? 0 : *how == 'o' ? 0xff : t_rng_next(&rng));
    if (*how == 't') T_EQ(ftruncate(it.file, (off_t)t_rng_below(&rng, FILE_BYTES)), 0);
    else if (*how == 'r') T_EQ(unlink(ledger_path()), 0);
    else T_EQ(pwrite(it.file, bytes, sizeof bytes, 0), sizeof bytes);
    if (*how == 'r') T_OK(tide_quota_take(it.b, 0));  // the first to come makes the file again
    if (*how != 'r') T_CHECK(join_once(ledger_path()) != TIDE_OK || *how == 'r');
    T_OK(tide_quota_take(it.a, 0));
    if (*how == 'r') T_OK(tide_quota_take(it.b, 0));
    const ledger_view view = ledger_look(ledger_path());
    T_EQ(view.count, 2);
    T_CHECK(tide_quota_take(it.b, 11 * MIB) != TIDE_OK);
    T_OK(tide_quota_take(it.b, 10 * MIB));
    T_OK(tide_quota_give(it.b, 10 * MIB));
    T_EQ(ledger_look(ledger_path()).ledger.held_bytes, 90 * MIB);
    T_CHECK(!ledger_look(ledger_path()).ledger.is_damaged);
  }
  pair_free(&it);
}

// A helper repairs the words of a member that does nothing.
T_TEST(test_file__a_helper_repairs_what_is_damaged) {
  tide_quota_options options = member_options(ledger_path());
  tide_quota* quota = NULL;
  static const uint8_t noise[SLOT_BYTES] = { 7, 7, 7 };
  options.has_helper = true;
  T_OK(tide_quota_join(&options, &quota));
  T_OK(tide_quota_take(quota, 60 * MIB));
  tide_quota* const other = member_join(ledger_path(), 0, TIDE_NO_LIMIT);
  file_write(ledger_path(), noise, sizeof noise - 32, SLOTS_AT);
  T_CHECK(tide_quota_take(other, 41 * MIB) != TIDE_OK);
  bool is_taken = false;
  T_WAIT(is_taken || (is_taken = tide_quota_take(other, 40 * MIB) == TIDE_OK));
  tide_quota_leave(other);
  tide_quota_leave(quota);
  ledger_end();
}

// A process that is stopped while it joins keeps no member from its memory.
T_TEST(test_file__a_ledger_that_is_kept_locked_serves_its_members) {
  pair it = pair_new();
  T_EQ(tide__sys_file_own(it.file, TIDE__QUOTA_CONTROL_AT, 1), 0);
  T_OK(tide_quota_give(it.a, 10 * MIB));
  T_OK(tide_quota_take(it.b, 20 * MIB));
  T_EQ(tide_quota_room(it.b), 0);
  T_EQ(ledger_look(ledger_path()).count, 2);
  T_STATUS(join_once(ledger_path()), TIDE_ERR_STATE);
  T_STR_HAS(tide_last_error()->text, "keeps the ledger locked");
  tide__sys_file_disown(it.file, TIDE__QUOTA_CONTROL_AT, 1);
  T_OK(join_once(ledger_path()));
  pair_free(&it);
}

// ---------------------------------------------------------------------------------------------------
// Words that are wrong although their checks are right: somebody wrote them on purpose

static void forged_write(int file, uint64_t nonce, uint32_t slot, uint32_t word, uint64_t value) {
  const uint64_t place = tide__quota_place(slot, (tide__quota_word)word);
  const uint64_t encoded = tide__quota_encode(nonce, place, value & TIDE__QUOTA_VALUE_MASK);
  const uint64_t at = tide__quota_slot_at(slot) + word * sizeof encoded;
  T_EQ(pwrite(file, &encoded, sizeof encoded, (off_t)at), sizeof encoded);
}

static uint64_t forged_value(t_rng* rng) {
  static const uint64_t edges[] = { 0, 1, 2, UINT32_MAX, TIDE__QUOTA_MOST, TIDE__QUOTA_UNLIMITED };
  if (t_rng_below(rng, 2) == 0) return edges[t_rng_below(rng, sizeof edges / sizeof edges[0])];
  return t_rng_next(rng) >> t_rng_below(rng, 64);
}

static void forged_answer(void* user, const tide_quota_ask* ask) {
  const uint64_t* const held = user;
  T_LE(ask->bytes, *held);
  T_CHECK(ask->step == TIDE_QUOTA_TRIM || ask->step == TIDE_QUOTA_PARK);
  T_CHECK(ask->priority >= -TIDE_QUOTA_PRIORITY && ask->priority <= TIDE_QUOTA_PRIORITY);
  T_LT(strlen(ask->name), TIDE_QUOTA_NAME);
}

// A member that says anything about itself keeps others from taking at most; when it is gone, all is well.
T_TEST(test_file__forged_words_do_no_harm) {
  tide_quota_options options = member_options(ledger_path());
  uint64_t held = 60 * MIB;
  tide__quota_head head;
  tide_quota* quota = NULL;
  t_rng rng = t_rng_new(11);
  options.wait_ns = 20000;
  options.on_ask = forged_answer;
  options.user = &held;
  T_OK(tide_quota_join(&options, &quota));
  T_OK(tide_quota_take(quota, held));
  const int file = open(ledger_path(), O_RDWR | O_CLOEXEC);
  T_EQ(pread(file, &head, sizeof head, 0), sizeof head);
  T_EQ(tide__sys_file_own(file, tide__quota_slot_at(5), 1), 0);
  for (size_t i = 0; i < t_scaled_alone(3000); ++i) {
    ledger_view view = { .count = 0 };
    for (uint32_t word = 0; word < TIDE__WORD_COUNT; ++word) {
      if (t_rng_below(&rng, 2) == 0) forged_write(file, head.nonce, 5, word, forged_value(&rng));
    }
    if (i % 8 == 0) forged_write(file, head.nonce, 5, TIDE__WORD_ASKED, TIDE__QUOTA_VALUE_MASK);
    if (tide_quota_take(quota, 40 * MIB) == TIDE_OK) T_OK(tide_quota_give(quota, 40 * MIB));
    T_CHECK(tide_quota_take(quota, 41 * MIB) != TIDE_OK);
    T_OK(tide_quota_read(ledger_path(), ledger_note, &view));
    T_LE(view.count, 2);
    T_EQ(view.members[0].held_bytes, 60 * MIB);
  }
  (void)close(file);
  T_OK(tide_quota_take(quota, 40 * MIB));
  T_EQ(ledger_look(ledger_path()).count, 1);
  tide_quota_leave(quota);
  ledger_end();
}

// ---------------------------------------------------------------------------------------------------
// Damage while processes run

typedef struct ruin {
  uint64_t held[4];
  uint64_t takes;
  uint64_t is_ending;
} ruin;

static tide_quota* ruined_join(void) {
  tide_quota_options options = member_options(ledger_path());
  tide_quota* quota = NULL;
  options.wait_ns = 2000000;
  options.has_helper = true;
  while (tide_quota_join(&options, &quota) != TIDE_OK) t_sleep_us(100);  // refused for now
  return quota;
}

__attribute__((noreturn)) static void ruined_run(ruin* all, uint64_t index) {
  t_rng rng = t_rng_new(index);
  tide_quota* const quota = ruined_join();
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (__atomic_load_n(&all->is_ending, __ATOMIC_SEQ_CST) == 0) {
    const uint64_t bytes = 51 * MIB + t_rng_below(&rng, 40 * MIB);  // one at a time
    if (tide_quota_take(quota, bytes) != TIDE_OK) continue;
    __atomic_store_n(&all->held[index], bytes, __ATOMIC_SEQ_CST);
    for (uint64_t i = 0; i < 4; ++i)
      T_CHECK(i == index || __atomic_load_n(&all->held[i], __ATOMIC_SEQ_CST) == 0);
    (void)__atomic_add_fetch(&all->takes, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&all->held[index], 0, __ATOMIC_SEQ_CST);
    T_OK(tide_quota_give(quota, bytes));
  }
  tide_quota_leave(quota);
  _exit(0);
}

static ruin* ruin_new(void) {
  char path[LEDGER_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s/shared", ledger_folder());
  const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  T_EQ(ftruncate(file, (off_t)sizeof(ruin)), 0);
  T_EQ(unlink(path), 0);
  void* const memory = mmap(NULL, sizeof(ruin), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  T_CHECK(memory != MAP_FAILED);
  (void)close(file);
  return memory;
}

// Only one of four can have memory at a time, whatever the file says.
T_TEST(test_file__damage_at_random_bytes_is_never_followed) {
  ruin* const all = ruin_new();
  pid_t pids[4];
  t_rng rng = t_rng_new(9);
  file_make(ledger_path());
  for (uint64_t i = 0; i < 4; ++i) {
    pids[i] = fork();
    if (pids[i] == 0) ruined_run(all, i);
  }
  const int file = open(ledger_path(), O_RDWR | O_CLOEXEC);
  for (size_t i = 0; i < t_scaled(3000); ++i) {
    const uint8_t noise = (uint8_t)t_rng_next(&rng);
    T_EQ(pwrite(file, &noise, 1, (off_t)t_rng_below(&rng, SLOTS_AT + 4 * SLOT_BYTES)), 1);
    t_sleep_us(t_rng_below(&rng, 300));
  }
  const uint64_t before = __atomic_load_n(&all->takes, __ATOMIC_SEQ_CST);
  T_WAIT(__atomic_load_n(&all->takes, __ATOMIC_SEQ_CST) > before + 10);  // they go on
  __atomic_store_n(&all->is_ending, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < 4; ++i) {
    int status = 0;
    T_EQ(waitpid(pids[i], &status, 0), pids[i]);
    T_EQ(status, 0);
  }
  (void)close(file);
  T_EQ(ledger_look(ledger_path()).count, 0);
  ledger_end();
}
