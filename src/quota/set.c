// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Making, removing and changing ledgers. Whoever changes the total or shares holds the control lock.
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/sys.h"
#include "quota/file.h"

static tide_status total_check(const char* call, uint64_t total) {
  TIDE_REQUIRE(tide__quota_units(total) > 0 && total <= TIDE_QUOTA_MOST_BYTES, TIDE_ERR_ARGUMENT,
               "%s: the total of %llu bytes is too small or too large", call, (unsigned long long)total);
  return TIDE_OK;
}

static void members_ring(const tide__quota_file* file) {
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) tide__quota_ring(file, slot);
  tide__quota_wake(file);
}

tide_status tide_quota_make(const char* ledger, uint64_t total_bytes) {
  tide__quota_file file;
  TIDE_TRY(total_check("quota_make", total_bytes));
  TIDE_TRY(
      tide__quota_file_open("quota_make", ledger, TIDE__QUOTA_MAKES, tide__quota_units(total_bytes), &file));
  tide__quota_file_close(&file);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Removing: a damaged file can be removed, too

static int file_remove(int folder, const char* name) {
  int descriptor = -1;
  int error = tide__sys_shared_open(folder, name, false, &descriptor);
  if (error != 0) return error;
  const uint64_t bytes = tide__quota_slot_at(TIDE_QUOTA_MEMBERS) - tide__quota_slot_at(0);
  error = tide__sys_file_own(descriptor, tide__quota_slot_at(0), bytes);
  if (error == EAGAIN || error == EACCES) error = EBUSY;
  if (error == 0) error = tide__sys_folder_remove(folder, name);
  tide__sys_file_close(descriptor);
  return error;
}

tide_status tide_quota_remove(const char* ledger) {
  tide__quota_path path;
  int folder = -1;
  TIDE_TRY(tide__quota_path_find("quota_remove", ledger, &path));
  int error = tide__sys_folder_open(path.folder, false, &folder);
  if (error == 0) {
    error = file_remove(folder, path.name);
    tide__sys_file_close(folder);
  }
  if (error == 0) return TIDE_OK;
  if (error == EBUSY)
    return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "quota_remove: the ledger '%s' has members", ledger);
  return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "quota_remove: the ledger '%s' (%s/%s): %s", ledger,
                          path.folder, path.name, strerror(error));
}

// ---------------------------------------------------------------------------------------------------
// The total

static tide_status total_set(const tide__quota_file* file, uint64_t total) {
  const uint64_t guarantees = tide__quota_guarantees(file, UINT32_MAX);
  TIDE_REQUIRE(guarantees <= total, TIDE_ERR_LIMIT,
               "quota_set_total: the guarantees of all members are %llu bytes, more than %llu",
               (unsigned long long)tide__quota_bytes(guarantees),
               (unsigned long long)tide__quota_bytes(total));
  tide__quota_put_total(file, total);
  members_ring(file);
  return TIDE_OK;
}

tide_status tide_quota_set_total(const char* ledger, uint64_t total_bytes) {
  tide__quota_file file;
  TIDE_TRY(total_check("quota_set_total", total_bytes));
  TIDE_TRY(tide__quota_file_open("quota_set_total", ledger, TIDE__QUOTA_WRITES, 0, &file));
  tide_status status = tide__quota_control_take("quota_set_total", &file);
  if (status == TIDE_OK) status = total_set(&file, tide__quota_units(total_bytes));
  tide__quota_file_close(&file);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Shares

static tide_status shares_check(const tide_quota_shares* shares) {
  const uint64_t limit = shares->limit_bytes;
  const uint32_t known = TIDE_QUOTA_SET_GUARANTEE | TIDE_QUOTA_SET_LIMIT | TIDE_QUOTA_SET_PRIORITY;
  TIDE_REQUIRE((shares->set & ~known) == 0, TIDE_ERR_ARGUMENT, "quota_set_shares: unknown bits 0x%x",
               (unsigned)shares->set);
  TIDE_REQUIRE((shares->set & TIDE_QUOTA_SET_GUARANTEE) == 0 ||
                   shares->guarantee_bytes <= TIDE_QUOTA_MOST_BYTES,
               TIDE_ERR_ARGUMENT, "quota_set_shares: the guarantee is too large");
  TIDE_REQUIRE((shares->set & TIDE_QUOTA_SET_LIMIT) == 0 || limit == TIDE_NO_LIMIT ||
                   limit <= TIDE_QUOTA_MOST_BYTES,
               TIDE_ERR_ARGUMENT, "quota_set_shares: the limit is too large");
  TIDE_REQUIRE((shares->set & TIDE_QUOTA_SET_PRIORITY) == 0 ||
                   (shares->priority >= -TIDE_QUOTA_PRIORITY && shares->priority <= TIDE_QUOTA_PRIORITY),
               TIDE_ERR_ARGUMENT, "quota_set_shares: the priority %d is not between -%d and %d",
               (int)shares->priority, TIDE_QUOTA_PRIORITY, TIDE_QUOTA_PRIORITY);
  return TIDE_OK;
}

// The shares that a member will have, as words.
static tide_status shares_merge(const tide__quota_file* file, uint32_t slot, const tide_quota_shares* shares,
                                uint64_t out[TIDE__WORD_COUNT]) {
  static const tide__quota_word words[] = { TIDE__WORD_GUARANTEE, TIDE__WORD_LIMIT, TIDE__WORD_PRIORITY };
  for (size_t i = 0; i < 3; i++) {
    TIDE_REQUIRE(tide__quota_get(file, slot, words[i], &out[words[i]]), TIDE_ERR_FORMAT,
                 "quota_set_shares: the shares of the member are damaged; it repairs them soon");
  }
  if ((shares->set & TIDE_QUOTA_SET_GUARANTEE) != 0)
    out[TIDE__WORD_GUARANTEE] = tide__quota_units_up(shares->guarantee_bytes);
  if ((shares->set & TIDE_QUOTA_SET_LIMIT) != 0)
    out[TIDE__WORD_LIMIT] = tide__quota_limit_units(shares->limit_bytes);
  if ((shares->set & TIDE_QUOTA_SET_PRIORITY) != 0)
    out[TIDE__WORD_PRIORITY] = tide__quota_priority_word(shares->priority);
  TIDE_REQUIRE(out[TIDE__WORD_GUARANTEE] <= out[TIDE__WORD_LIMIT], TIDE_ERR_ARGUMENT,
               "quota_set_shares: the guarantee of %llu bytes is above the limit of %llu bytes",
               (unsigned long long)tide__quota_bytes(out[TIDE__WORD_GUARANTEE]),
               (unsigned long long)tide__quota_bytes(out[TIDE__WORD_LIMIT]));
  return TIDE_OK;
}

static void shares_put(const tide__quota_file* file, uint32_t slot, const uint64_t words[TIDE__WORD_COUNT]) {
  tide__quota_put(file, slot, TIDE__WORD_GUARANTEE, words[TIDE__WORD_GUARANTEE]);
  tide__quota_put(file, slot, TIDE__WORD_LIMIT, words[TIDE__WORD_LIMIT]);
  tide__quota_put(file, slot, TIDE__WORD_PRIORITY, words[TIDE__WORD_PRIORITY]);
}

static bool slot_has_pid(const tide__quota_file* file, uint32_t slot, int64_t pid) {
  uint64_t found = 0;
  return tide__quota_get(file, slot, TIDE__WORD_PID, &found) && (int64_t)found == pid &&
         tide__quota_slot_is_taken(file, slot);
}

// Finds all members with the pid first, and changes them when everything is known to be right.
static tide_status shares_set(const tide__quota_file* file, int64_t pid, const tide_quota_shares* shares) {
  uint64_t words[TIDE_QUOTA_MEMBERS][TIDE__WORD_COUNT];
  bool is_meant[TIDE_QUOTA_MEMBERS] = { false };
  bool is_found = false;
  uint64_t total = 0;
  uint64_t guarantees = tide__quota_guarantees(file, UINT32_MAX);
  TIDE_REQUIRE(tide__quota_get_total(file, &total), TIDE_ERR_FORMAT,
               "quota_set_shares: the total is damaged");
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) {
    uint64_t before = 0;
    is_meant[slot] = slot_has_pid(file, slot, pid);
    if (!is_meant[slot]) continue;
    is_found = true;
    TIDE_TRY(shares_merge(file, slot, shares, words[slot]));
    (void)tide__quota_get(file, slot, TIDE__WORD_GUARANTEE, &before);
    guarantees = guarantees - before + words[slot][TIDE__WORD_GUARANTEE];
  }
  TIDE_REQUIRE(is_found, TIDE_ERR_HANDLE, "quota_set_shares: no member has the process id %lld",
               (long long)pid);
  TIDE_REQUIRE(guarantees <= total, TIDE_ERR_LIMIT,
               "quota_set_shares: the guarantees of all members would be %llu bytes, more than the total of "
               "%llu",
               (unsigned long long)tide__quota_bytes(guarantees),
               (unsigned long long)tide__quota_bytes(total));
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) {
    if (is_meant[slot]) shares_put(file, slot, words[slot]);
  }
  members_ring(file);
  return TIDE_OK;
}

tide_status tide_quota_set_shares(const char* ledger, int64_t pid, const tide_quota_shares* shares) {
  tide_quota_shares own = TIDE_QUOTA_SHARES_INIT;
  tide__quota_file file;
  TIDE_REQUIRE(pid > 0, TIDE_ERR_ARGUMENT, "quota_set_shares: %lld is not a process id", (long long)pid);
  TIDE_TRY(tide__sized_read("quota_set_shares", shares, &own, sizeof own));
  TIDE_TRY(shares_check(&own));
  TIDE_TRY(tide__quota_file_open("quota_set_shares", ledger, TIDE__QUOTA_WRITES, 0, &file));
  tide_status status = tide__quota_control_take("quota_set_shares", &file);
  if (status == TIDE_OK) status = shares_set(&file, pid, &own);
  tide__quota_file_close(&file);
  return status;
}
