// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The file of a ledger. Names in shared folders may be set up by other users, so nothing is followed: links
// are refused, owner and mode are read from the open descriptor, and every number of the file is checked
// before it is used.
#include "quota/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/crc.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/lock.h"
#include "base/sys.h"

#define CONTROL_WAIT_NS UINT64_C(5000000000)
#define CONTROL_SPINS 200
#define CONTROL_SLEEP_NS UINT64_C(2000000)
#define TOTAL_WAIT_NS UINT64_C(1000000000)  // for members that repair the total

// ---------------------------------------------------------------------------------------------------
// Words

bool tide__quota_get(const tide__quota_file* file, uint32_t slot, tide__quota_word word, uint64_t* out) {
  const uint64_t raw = tide__load_seq(&file->map->slots[slot].words[word]);
  uint64_t value = 0;
  if (!tide__quota_decode(file->head.nonce, tide__quota_place(slot, word), raw, &value)) return false;
  if (word == TIDE__WORD_PRIORITY && value > TIDE__QUOTA_PRIORITY_MOST) return false;
  *out = value;
  return true;
}

void tide__quota_put(const tide__quota_file* file, uint32_t slot, tide__quota_word word, uint64_t value) {
  TIDE_ASSERT(value <= TIDE__QUOTA_VALUE_MASK);
  tide__store_seq(&file->map->slots[slot].words[word],
                  tide__quota_encode(file->head.nonce, tide__quota_place(slot, word), value));
}

static uint64_t total_encode(const tide__quota_file* file, uint32_t which, uint64_t total) {
  return tide__quota_encode(file->head.nonce, TIDE__QUOTA_TOTAL_PLACE + which, total);
}

static bool total_decode(const tide__quota_file* file, uint32_t which, uint64_t raw, uint64_t* out) {
  uint64_t value = 0;
  if (!tide__quota_decode(file->head.nonce, TIDE__QUOTA_TOTAL_PLACE + which, raw, &value)) return false;
  if (value == 0 || value > TIDE__QUOTA_MOST) return false;
  *out = value;
  return true;
}

bool tide__quota_get_total(const tide__quota_file* file, uint64_t* out) {
  return total_decode(file, 0, tide__load_seq(&file->map->totals[0]), out) ||
         total_decode(file, 1, tide__load_seq(&file->map->totals[1]), out);
}

void tide__quota_put_total(const tide__quota_file* file, uint64_t total) {
  for (uint32_t i = 0; i < 2; i++) tide__store_seq(&file->map->totals[i], total_encode(file, i, total));
}

// The first word is set first, so it is right if both are good and differ. A word that somebody else has
// changed meanwhile is left alone.
void tide__quota_mend_total(const tide__quota_file* file, uint64_t* good) {
  uint64_t raw[2] = { 0, 0 };
  uint64_t values[2] = { *good, *good };
  bool is_good[2] = { false, false };
  for (uint32_t i = 0; i < 2; i++) {
    raw[i] = tide__load_seq(&file->map->totals[i]);
    is_good[i] = total_decode(file, i, raw[i], &values[i]);
  }
  const uint64_t wanted = is_good[0] ? values[0] : values[1];
  if (is_good[0] && is_good[1] && values[0] == values[1]) *good = wanted;
  for (uint32_t i = 0; i < 2; i++) {
    const uint64_t word = total_encode(file, i, wanted);
    if (raw[i] != word) (void)atomic_compare_exchange_strong(&file->map->totals[i], &raw[i], word);
  }
}

void tide__quota_get_name(const tide__quota_file* file, uint32_t slot, char out[TIDE_QUOTA_NAME]) {
  uint64_t words[TIDE__QUOTA_NAME_WORDS];
  for (size_t i = 0; i < TIDE__QUOTA_NAME_WORDS; i++)
    words[i] = tide__load_relaxed(&file->map->slots[slot].name[i]);
  memcpy(out, words, sizeof words);
  out[TIDE_QUOTA_NAME - 1] = '\0';
}

void tide__quota_ring(const tide__quota_file* file, uint32_t slot) {
  tide__atomic_u32* const bell = &file->map->slots[slot].bell;
  (void)tide__add_seq(bell, 1);
  tide__sys_shared_futex_wake(bell);
}

void tide__quota_wake(const tide__quota_file* file) {
  (void)tide__add_seq(&file->map->changed, 1);
  tide__sys_shared_futex_wake(&file->map->changed);
}

// What a word of an empty slot is.
static uint64_t empty_value(tide__quota_word word) {
  if (word == TIDE__WORD_LIMIT) return TIDE__QUOTA_UNLIMITED;
  return word == TIDE__WORD_PRIORITY ? TIDE_QUOTA_PRIORITY : 0;
}

// The number of the process goes first: a slot without one is not shown.
void tide__quota_slot_clear(const tide__quota_file* file, uint32_t slot) {
  for (int word = 0; word < TIDE__WORD_COUNT; word++) {
    tide__quota_put(file, slot, (tide__quota_word)word, empty_value((tide__quota_word)word));
  }
}

uint64_t tide__quota_guarantees(const tide__quota_file* file, uint32_t except) {
  uint64_t sum = 0;
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) {
    uint64_t value = 0;
    if (slot == except || !tide__quota_get(file, slot, TIDE__WORD_GUARANTEE, &value) || value == 0) continue;
    if (tide__quota_slot_is_taken(file, slot)) sum += value;
  }
  return sum;
}

// ---------------------------------------------------------------------------------------------------
// Locks

bool tide__quota_slot_take(const tide__quota_file* file, uint32_t slot) {
  return tide__sys_file_own(file->descriptor, tide__quota_slot_at(slot), 1) == 0;
}

void tide__quota_slot_drop(const tide__quota_file* file, uint32_t slot) {
  tide__sys_file_disown(file->descriptor, tide__quota_slot_at(slot), 1);
}

bool tide__quota_slot_is_taken(const tide__quota_file* file, uint32_t slot) {
  return tide__sys_file_is_locked(file->descriptor, tide__quota_slot_at(slot), 1);
}

tide_status tide__quota_control_take(const char* call, const tide__quota_file* file) {
  const uint64_t end_ns = tide__sys_clock_ns() + CONTROL_WAIT_NS;
  int error = 0;
  for (uint32_t times = 0;; times++) {
    error = tide__sys_file_own(file->descriptor, TIDE__QUOTA_CONTROL_AT, 1);
    if (error == 0) return TIDE_OK;
    if ((error != EAGAIN && error != EACCES) || tide__sys_clock_ns() >= end_ns) break;
    if (times < CONTROL_SPINS) tide__wait_a_moment(times);
    else tide__sys_sleep_ns(CONTROL_SLEEP_NS);
  }
  return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "%s: another process keeps the ledger locked: %s", call,
                          strerror(error));
}

void tide__quota_control_drop(const tide__quota_file* file) {
  tide__sys_file_disown(file->descriptor, TIDE__QUOTA_CONTROL_AT, 1);
}

// ---------------------------------------------------------------------------------------------------
// Names

static bool name_is_word(const char* text) {
  const size_t length = strlen(text);
  const char* const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return length > 0 && length <= 64 && strspn(text, letters) == length;
}

static tide_status path_split(const char* call, const char* path, tide__quota_path* out) {
  const char* const slash = strrchr(path, '/');
  const size_t folder_bytes = slash == path ? 1 : (size_t)(slash - path);
  TIDE_REQUIRE(slash[1] != '\0', TIDE_ERR_ARGUMENT, "%s: the path '%s' names no file", call, path);
  memcpy(out->folder, path, folder_bytes);
  out->folder[folder_bytes] = '\0';
  (void)snprintf(out->name, sizeof out->name, "%s", slash + 1);
  return TIDE_OK;
}

tide_status tide__quota_path_find(const char* call, const char* ledger, tide__quota_path* out) {
  TIDE_REQUIRE(ledger != NULL, TIDE_ERR_ARGUMENT, "%s: no ledger is named", call);
  TIDE_REQUIRE(strlen(ledger) < TIDE_QUOTA_LEDGER - 64, TIDE_ERR_ARGUMENT,
               "%s: the name of the ledger is too long", call);
  out->is_default = *ledger != '/';
  if (!out->is_default) return path_split(call, ledger, out);
  TIDE_REQUIRE(name_is_word(ledger), TIDE_ERR_ARGUMENT,
               "%s: '%s' is no name of a ledger: use up to 64 letters, digits, '-', '_' and '.', or a path "
               "that begins with '/'",
               call, ledger);
  (void)snprintf(out->folder, sizeof out->folder, "/dev/shm/tidemark-%u", tide__sys_user());
  (void)snprintf(out->name, sizeof out->name, TIDE__QUOTA_PREFIX "%s", ledger);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Heads

static uint32_t head_checksum(const tide__quota_head* head) {
  tide__crc crc;
  tide__crc_init(&crc);
  return tide__crc_of(&crc, head, offsetof(tide__quota_head, checksum));
}

static tide__quota_head head_new(void) {
  tide__quota_head head = { .magic = TIDE__QUOTA_MAGIC,
                            .version = TIDE__QUOTA_VERSION,
                            .slot_count = TIDE_QUOTA_MEMBERS,
                            .slot_bytes = sizeof(tide__quota_slot),
                            .file_bytes = TIDE__QUOTA_FILE_BYTES,
                            .nonce = tide__sys_random(),
                            .made_ns = tide__sys_wall_clock_ns() };
  head.checksum = head_checksum(&head);
  return head;
}

static bool head_is_sound(const tide__quota_head* head) {
  return head->slot_count == TIDE_QUOTA_MEMBERS && head->slot_bytes == sizeof(tide__quota_slot) &&
         head->file_bytes == TIDE__QUOTA_FILE_BYTES && head->checksum == head_checksum(head);
}

// The whole file is written before its magic number. A file without one was given up by a process that died.
static int file_fill(int descriptor, uint64_t total, tide__quota_head* out) {
  const tide_heap* const heap = tide__heap_or_system(NULL);
  tide__quota_map* const map = tide__heap_alloc(heap, 1, TIDE__QUOTA_FILE_BYTES);
  if (map == NULL) return ENOMEM;
  const tide__quota_head head = head_new();
  const tide__quota_file image = { .map = map, .head = head };
  const size_t magic_bytes = sizeof head.magic;
  memcpy(map, &head, sizeof head);
  tide__store_relaxed(&map->head[0], 0);
  tide__quota_put_total(&image, total);
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) tide__quota_slot_clear(&image, slot);
  int error = tide__sys_file_fill(descriptor, TIDE__QUOTA_FILE_BYTES);
  if (error == 0) error = tide__sys_page_put(descriptor, 0, map, TIDE__QUOTA_FILE_BYTES);
  if (error == 0) error = tide__sys_page_put(descriptor, 0, &head.magic, magic_bytes);
  tide__heap_release(heap, map, 1, TIDE__QUOTA_FILE_BYTES);
  if (error == 0) *out = head;
  return error;
}

static bool slots_are_free(const tide__quota_file* file) {
  const uint64_t bytes = tide__quota_slot_at(TIDE_QUOTA_MEMBERS) - tide__quota_slot_at(0);
  return !tide__sys_file_is_locked(file->descriptor, tide__quota_slot_at(0), bytes);
}

// Is it a file that a process began to make? One with members was damaged.
static bool file_is_unfinished(const tide__quota_file* file, uint64_t bytes, const tide__quota_head* head) {
  const bool is_begun = bytes == 0 || (bytes == TIDE__QUOTA_FILE_BYTES && head->magic == 0);
  return is_begun && slots_are_free(file);
}

static tide_status head_check(const char* call, const char* ledger, uint64_t bytes,
                              const tide__quota_head* head) {
  TIDE_REQUIRE(head->magic == TIDE__QUOTA_MAGIC, TIDE_ERR_FORMAT, "%s: '%s' is not a ledger", call, ledger);
  TIDE_REQUIRE(head->version == TIDE__QUOTA_VERSION || bytes < sizeof *head, TIDE_ERR_UNSUPPORTED,
               "%s: the ledger '%s' has version %u of the format; this library knows version %u", call,
               ledger, (unsigned)head->version, TIDE__QUOTA_VERSION);
  TIDE_REQUIRE(bytes == TIDE__QUOTA_FILE_BYTES, TIDE_ERR_FORMAT,
               "%s: the ledger '%s' has %llu bytes, not %llu: it was truncated or is damaged; remove it when "
               "no process uses it",
               call, ledger, (unsigned long long)bytes, (unsigned long long)TIDE__QUOTA_FILE_BYTES);
  TIDE_REQUIRE(head_is_sound(head), TIDE_ERR_FORMAT,
               "%s: the head of the ledger '%s' is damaged; its members repair it, or remove it when no "
               "process uses it",
               call, ledger);
  return TIDE_OK;
}

// Reads and checks the head, or writes the file if it is new.
static tide_status file_prepare(const char* call, const char* ledger, uint64_t total,
                                tide__quota_file* file) {
  tide__quota_head head = { .magic = 0 };
  uint64_t bytes = 0;
  int error = tide__sys_file_bytes(file->descriptor, &bytes);
  if (error == 0 && bytes > 0)
    error = tide__sys_page_get(file->descriptor, 0, &head, tide__min(bytes, sizeof head));
  if (error == 0 && total != 0 && file_is_unfinished(file, bytes, &head)) {
    error = file_fill(file->descriptor, total, &file->head);
    if (error == 0) return TIDE_OK;
  }
  if (error != 0) {
    return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "%s: the ledger '%s' cannot be read or written: %s", call,
                            ledger, strerror(error));
  }
  TIDE_TRY(head_check(call, ledger, bytes, &head));
  file->head = head;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Opening

static tide_status open_failed(const char* call, const char* ledger, const tide__quota_path* path,
                               int error) {
  if (error == ENOENT) {
    return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "%s: there is no ledger '%s' (%s/%s)", call, ledger,
                            path->folder, path->name);
  }
  if (error == EEXIST) {
    return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "%s: the ledger '%s' exists", call, ledger);
  }
  return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error,
                          "%s: the ledger %s/%s cannot be used: %s; file and folder must belong to this "
                          "user, be closed to others (modes 0600 and 0700), and be no links",
                          call, path->folder, path->name, strerror(error));
}

static int file_find(const tide__quota_path* path, tide__quota_access access, uint64_t total, int* out) {
  int folder = -1;
  const bool makes = total != 0 && access >= TIDE__QUOTA_JOINS;
  int error = tide__sys_folder_open(path->folder, makes && path->is_default, &folder);
  if (error != 0) return error;
  if (access == TIDE__QUOTA_MAKES)
    error = tide__sys_page_new(folder, path->name, TIDE__QUOTA_FILE_BYTES, out);
  else error = tide__sys_shared_open(folder, path->name, makes, out);
  tide__sys_file_close(folder);
  return error;
}

static tide_status file_map(const char* call, tide__quota_file* file, bool can_write) {
  uint64_t address = 0;
  const int error = tide__sys_map_shared(file->descriptor, TIDE__QUOTA_FILE_BYTES, can_write, 0, &address);
  if (error != 0) {
    return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "%s: the ledger cannot be mapped: %s", call,
                            strerror(error));
  }
  file->map = tide__pointer(address);
  return TIDE_OK;
}

// A damaged total is repaired by any member. If there is none, a new total is needed.
static tide_status total_await(const char* call, const char* ledger, uint64_t total,
                               const tide__quota_file* file) {
  const uint64_t end_ns = tide__sys_clock_ns() + TOTAL_WAIT_NS;
  uint64_t found = 0;
  for (uint32_t times = 0; !tide__quota_get_total(file, &found); times++) {
    const bool is_free = slots_are_free(file);
    if (is_free && total != 0) tide__quota_put_total(file, total);
    else if (is_free || tide__sys_clock_ns() >= end_ns)
      return TIDE_FAIL(TIDE_ERR_FORMAT, "%s: the total of the ledger '%s' is damaged", call, ledger);
    else tide__wait_a_moment(times);
  }
  return TIDE_OK;
}

static tide_status file_begin(const char* call, const char* ledger, tide__quota_access access, uint64_t total,
                              tide__quota_file* file) {
  const bool can_write = access != TIDE__QUOTA_READS;
  if (can_write) TIDE_TRY(tide__quota_control_take(call, file));
  tide_status status = file_prepare(call, ledger, can_write ? total : 0, file);
  if (can_write) tide__quota_control_drop(file);
  if (status == TIDE_OK) status = file_map(call, file, can_write);
  if (status == TIDE_OK && can_write) status = total_await(call, ledger, total, file);
  return status;
}

tide_status tide__quota_file_open(const char* call, const char* ledger, tide__quota_access access,
                                  uint64_t total, tide__quota_file* out) {
  tide__quota_path path;
  TIDE_TRY(tide__quota_path_find(call, ledger, &path));
  *out = (tide__quota_file){ .descriptor = -1 };
  const int error = file_find(&path, access, total, &out->descriptor);
  if (error != 0) return open_failed(call, ledger, &path, error);
  const tide_status status = file_begin(call, ledger, access, total, out);
  if (status != TIDE_OK) tide__quota_file_close(out);
  return status;
}

void tide__quota_file_close(tide__quota_file* file) {
  if (file->map != NULL) (void)tide__sys_release(tide__address(file->map), TIDE__QUOTA_FILE_BYTES);
  if (file->descriptor >= 0) tide__sys_file_close(file->descriptor);
  *file = (tide__quota_file){ .descriptor = -1 };
}

// The mapping is replaced first: if the descriptor then fails, the next call finds the old one removed, and
// tries again.
tide_status tide__quota_file_replace(const char* call, const char* ledger, uint64_t total,
                                     tide__quota_file* file) {
  tide__quota_file next;
  TIDE_TRY(tide__quota_file_open(call, ledger, TIDE__QUOTA_JOINS, total, &next));
  uint64_t address = tide__address(file->map);
  int error = tide__sys_map_shared(next.descriptor, TIDE__QUOTA_FILE_BYTES, true, address, &address);
  if (error == 0) file->head = next.head;
  if (error == 0) error = tide__sys_file_replace(next.descriptor, file->descriptor);
  tide__quota_file_close(&next);
  if (error == 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "%s: the ledger '%s' cannot be made again: %s", call, ledger,
                          strerror(error));
}

// ---------------------------------------------------------------------------------------------------
// Mending

// A head that is sound but another one: the file was made anew while it had no members.
static bool head_mend(tide__quota_file* file) {
  uint64_t words[TIDE__QUOTA_HEAD_WORDS];
  uint64_t found[TIDE__QUOTA_HEAD_WORDS] = { 0 };
  tide__quota_head other;
  for (size_t i = 0; i < TIDE__QUOTA_HEAD_WORDS; i++) found[i] = tide__load_relaxed(&file->map->head[i]);
  memcpy(words, &file->head, sizeof words);
  if (memcmp(words, found, sizeof words) == 0) return true;
  memcpy(&other, found, sizeof other);
  if (other.magic == TIDE__QUOTA_MAGIC && head_is_sound(&other)) return false;
  for (size_t i = 0; i < TIDE__QUOTA_HEAD_WORDS; i++) tide__store_seq(&file->map->head[i], words[i]);
  return true;
}

int tide__quota_file_mend(tide__quota_file* file) {
  if (!tide__sys_page_is_whole(file->descriptor, TIDE__QUOTA_FILE_BYTES)) {
    if (!tide__sys_page_is_whole(file->descriptor, 0)) return ENOENT;
    const int error = tide__sys_file_fill(file->descriptor, TIDE__QUOTA_FILE_BYTES);
    if (error != 0) return error;
  }
  return head_mend(file) ? 0 : ENOENT;
}
