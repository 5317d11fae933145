// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes the reader of plan files: any bytes are read to a plan or refused, in memory in proportion to them,
// also when they come in pieces and when memory ends in the middle. A plan that was read passes the verifier
// and a check of this file's own, and is written so that it reads back equal. As a fuzzer finds no checksum
// by chance, each input is tried three times: as it is, with the checksum made right, and with the sums in
// its head made right too.
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "base/crc.h"
#include "tidemark/profile.h"

enum { FUZZ_PAIRS = 200, FUZZ_BYTES_FOR_EACH = 512, FUZZ_BYTES_AT_LEAST = 1 << 20 };

// ---------------------------------------------------------------------------------------------------
// A heap with a limit

typedef struct fuzz_heap {
  size_t taken;
  size_t most;  // that may be taken: more is a fault of the reader
  size_t calls;
  size_t last;  // the call that gets memory for the last time; 0: every one does
} fuzz_heap;

static void* fuzz_heap_alloc(void* user, size_t bytes, size_t alignment) {
  fuzz_heap* const h = user;
  void* address = NULL;
  FUZZ_REQUIRE(bytes > 0 && bytes <= h->most && h->taken <= h->most - bytes);
  if (h->last > 0 && ++h->calls > h->last) return NULL;
  FUZZ_REQUIRE(posix_memalign(&address, alignment, bytes) == 0);
  h->taken += bytes;
  return address;
}

static void fuzz_heap_release(void* user, void* address, size_t bytes) {
  fuzz_heap* const h = user;
  FUZZ_REQUIRE(address != NULL && bytes <= h->taken);
  h->taken -= bytes;
  free(address);
}

static fuzz_heap fuzz_heap_for(size_t file_bytes) {
  return (fuzz_heap){ .most = FUZZ_BYTES_AT_LEAST + FUZZ_BYTES_FOR_EACH * file_bytes };
}

// ---------------------------------------------------------------------------------------------------
// Files

typedef struct fuzz_file {
  uint8_t* data;  // owned
  size_t bytes;
  size_t at;
  size_t piece;  // the most that one reading gives
} fuzz_file;

static tide_status fuzz_file_read(void* user, void* out, size_t room, size_t* out_bytes) {
  fuzz_file* const file = user;
  const size_t left = file->bytes - file->at;
  const size_t most = room < file->piece ? room : file->piece;
  FUZZ_REQUIRE(room > 0);
  *out_bytes = left < most ? left : most;
  if (*out_bytes > 0) memcpy(out, file->data + file->at, *out_bytes);
  file->at += *out_bytes;
  return TIDE_OK;
}

static tide_status fuzz_file_write(void* user, const void* data, size_t bytes) {
  fuzz_file* const file = user;
  if (bytes == 0) return TIDE_OK;
  file->data = realloc(file->data, file->bytes + bytes);
  FUZZ_REQUIRE(file->data != NULL);
  memcpy(file->data + file->bytes, data, bytes);
  file->bytes += bytes;
  return TIDE_OK;
}

static tide_status fuzz_read(fuzz_file* file, size_t piece, fuzz_heap* taken, tide_heap* out_heap,
                             tide_profile_plan** out) {
  const tide_source source = { fuzz_file_read, file };
  *out_heap = (tide_heap){ fuzz_heap_alloc, fuzz_heap_release, taken };
  file->at = 0;
  file->piece = piece;
  return tide_profile_plan_read(&source, out_heap, out);
}

// ---------------------------------------------------------------------------------------------------
// The check

static bool fuzz_is_apart(const tide_profile_request* a, const tide_profile_request* b) {
  return a->offset >= b->offset + b->bytes || b->offset >= a->offset + a->bytes;
}

static void fuzz_check_request(const tide_profile_request* request, size_t index,
                               const tide_profile_plan_info* info) {
  const bool is_managed = request->lifetime != TIDE_PROFILE_NEVER;
  const uint64_t limit = is_managed ? info->bytes : info->escape_bytes;
  FUZZ_REQUIRE(request->bytes > 0 && request->bytes < TIDE_PLAN_MAX_BYTES);
  FUZZ_REQUIRE(request->alignment > 0 && (request->alignment & (request->alignment - 1)) == 0);
  FUZZ_REQUIRE(request->alignment <= info->alignment && info->alignment <= TIDE_PROFILE_MAX_ALIGNMENT);
  FUZZ_REQUIRE(!is_managed || (request->lifetime > index && request->lifetime <= info->count));
  FUZZ_REQUIRE(request->offset % request->alignment == 0);
  FUZZ_REQUIRE(request->bytes <= limit && request->offset <= limit - request->bytes);
}

// No two of one arena that live at the same time lie over one another.
static void fuzz_check_pairs(const tide_profile_request* requests, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const bool is_managed = requests[i].lifetime != TIDE_PROFILE_NEVER;
    for (size_t j = i + 1; j < count; j++) {
      if ((requests[j].lifetime != TIDE_PROFILE_NEVER) != is_managed) continue;
      const bool is_free = is_managed && requests[i].lifetime <= j;
      FUZZ_REQUIRE(is_free || fuzz_is_apart(&requests[i], &requests[j]));
    }
  }
}

static void fuzz_check_requests(const tide_profile_request* requests, const tide_profile_plan_info* info) {
  size_t managed = 0;
  for (size_t i = 0; i < info->count; i++) {
    fuzz_check_request(&requests[i], i, info);
    managed += requests[i].lifetime != TIDE_PROFILE_NEVER;
  }
  FUZZ_REQUIRE(managed == info->managed);
  fuzz_check_pairs(requests, info->count < FUZZ_PAIRS ? info->count : FUZZ_PAIRS);
}

// The most bytes that live at once, by looking at every time.
static void fuzz_check_bound(const tide_profile_request* requests, const tide_profile_plan_info* info) {
  uint64_t most = 0;
  if (info->count > FUZZ_PAIRS) return;
  for (size_t time = 0; time < info->count; time++) {
    uint64_t sum = 0;
    for (size_t i = 0; i <= time; i++) {
      const bool is_managed = requests[i].lifetime != TIDE_PROFILE_NEVER;
      if (is_managed && requests[i].lifetime > time) sum += requests[i].bytes;
    }
    if (sum > most) most = sum;
  }
  FUZZ_REQUIRE(info->lower_bound >= most && info->lower_bound <= info->bytes);
}

static bool fuzz_is_same_info(const tide_profile_plan_info* a, const tide_profile_plan_info* b) {
  return a->count == b->count && a->managed == b->managed && a->bytes == b->bytes &&
         a->escape_bytes == b->escape_bytes && a->lower_bound == b->lower_bound &&
         a->alignment == b->alignment && a->hash == b->hash && a->planner == b->planner;
}

static bool fuzz_is_same_request(tide_profile_request a, tide_profile_request b) {
  return a.bytes == b.bytes && a.alignment == b.alignment && a.lifetime == b.lifetime && a.offset == b.offset;
}

static void fuzz_check_same(const tide_profile_plan* a, const tide_profile_plan* b) {
  const tide_profile_plan_info info_a = tide_profile_plan_describe(a);
  const tide_profile_plan_info info_b = tide_profile_plan_describe(b);
  FUZZ_REQUIRE(fuzz_is_same_info(&info_a, &info_b));
  for (size_t i = 0; i < info_a.count; i++) {
    FUZZ_REQUIRE(fuzz_is_same_request(tide_profile_plan_request(a, i), tide_profile_plan_request(b, i)));
  }
}

// Written, a plan is as long as the file that it was read from, and reads back to itself.
static void fuzz_check_written(const fuzz_file* given, const tide_profile_plan* plan) {
  fuzz_file file = { NULL, 0, 0, 0 };
  const tide_sink sink = { fuzz_file_write, &file };
  fuzz_heap taken = fuzz_heap_for(given->bytes);
  tide_heap heap;
  tide_profile_plan* again = NULL;
  FUZZ_REQUIRE(tide_profile_plan_write(plan, &sink) == TIDE_OK);
  FUZZ_REQUIRE(file.bytes == given->bytes);
  FUZZ_REQUIRE(fuzz_read(&file, SIZE_MAX, &taken, &heap, &again) == TIDE_OK);
  fuzz_check_same(plan, again);
  tide_profile_plan_free(again);
  FUZZ_REQUIRE(taken.taken == 0);
  free(file.data);
}

static void fuzz_check_plan(const fuzz_file* given, const tide_profile_plan* plan) {
  static const tide_profile_request nothing = { 0, 0, 0, 0 };
  const tide_profile_plan_info info = tide_profile_plan_describe(plan);
  tide_profile_request* const requests = calloc(info.count + 1, sizeof *requests);
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  FUZZ_REQUIRE(requests != NULL);
  for (size_t i = 0; i < info.count; i++) requests[i] = tide_profile_plan_request(plan, i);
  FUZZ_REQUIRE(fuzz_is_same_request(tide_profile_plan_request(plan, info.count), nothing));
  FUZZ_REQUIRE(tide_profile_verify(requests, info.count, info.bytes, NULL, &check) == TIDE_OK);
  FUZZ_REQUIRE(check.fault == TIDE_PLAN_NO_FAULT && check.peak <= info.bytes);
  fuzz_check_requests(requests, &info);
  fuzz_check_bound(requests, &info);
  fuzz_check_written(given, plan);
  free(requests);
}

// ---------------------------------------------------------------------------------------------------
// Reading

// With less memory than it took; it is enough, or the call fails and nothing is left.
static void fuzz_read_with_less(fuzz_file* file, size_t calls) {
  fuzz_heap taken = fuzz_heap_for(file->bytes);
  tide_heap heap;
  tide_profile_plan* plan = NULL;
  taken.last = 1 + file->bytes % calls;
  const tide_status status = fuzz_read(file, SIZE_MAX, &taken, &heap, &plan);
  FUZZ_REQUIRE((status == TIDE_OK) == (plan != NULL));
  tide_profile_plan_free(plan);
  FUZZ_REQUIRE(taken.taken == 0);
}

static void fuzz_check_file(fuzz_file* file) {
  fuzz_heap taken = fuzz_heap_for(file->bytes);
  fuzz_heap taken_pieces = taken;
  tide_heap heap;
  tide_heap heap_pieces;
  tide_profile_plan* plan = NULL;
  tide_profile_plan* pieces = NULL;
  taken.last = SIZE_MAX;  // counts the calls
  const tide_status status = fuzz_read(file, SIZE_MAX, &taken, &heap, &plan);
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_FORMAT || status == TIDE_ERR_UNSUPPORTED);
  FUZZ_REQUIRE((status == TIDE_OK) == (plan != NULL));
  FUZZ_REQUIRE(fuzz_read(file, 1 + file->bytes % 13, &taken_pieces, &heap_pieces, &pieces) == status);
  if (plan != NULL) {
    fuzz_check_plan(file, plan);
    fuzz_check_same(plan, pieces);
  }
  tide_profile_plan_free(plan);
  tide_profile_plan_free(pieces);
  FUZZ_REQUIRE(taken.taken == 0 && taken_pieces.taken == 0);
  if (taken.calls > 0) fuzz_read_with_less(file, taken.calls);
}

// ---------------------------------------------------------------------------------------------------
// Mending

// Where the parts of a file are: docs/profile.md.
enum { FUZZ_COUNT_AT = 16, FUZZ_BYTES_AT = 24, FUZZ_HASH_AT = 32, FUZZ_HEAD = 40, FUZZ_SUM = 4 };

static uint64_t fuzz_get(const uint8_t* at) {
  uint64_t number = 0;
  for (size_t i = 0; i < 8; i++) number |= (uint64_t)at[i] << (8 * i);
  return number;
}

static void fuzz_put(uint8_t* at, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) at[i] = (uint8_t)(number >> (8 * i));
}

// Seven bits a byte, the lowest first.
static uint64_t fuzz_get_number(fuzz_file* file) {
  uint64_t number = 0;
  for (unsigned shift = 0; shift < 64 && file->at + FUZZ_SUM < file->bytes; shift += 7) {
    const uint8_t byte = file->data[file->at++];
    number |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) break;
  }
  return number;
}

static void fuzz_mend_checksum(fuzz_file* file) {
  static tide__crc crc;
  if (file->bytes < FUZZ_HEAD + FUZZ_SUM) return;
  tide__crc_init(&crc);
  const size_t bytes = file->bytes - FUZZ_SUM;
  fuzz_put(file->data + bytes, tide__crc_of(&crc, file->data, bytes), FUZZ_SUM);
}

// The hash of the requests and the end of the highest, if they are requests at all.
static void fuzz_mend_head(fuzz_file* file) {
  if (file->bytes < FUZZ_HEAD + FUZZ_SUM) return;
  const uint64_t count = fuzz_get(file->data + FUZZ_COUNT_AT);
  if (count > file->bytes) return;
  tide_profile_request* const requests = calloc(count + 1, sizeof *requests);
  tide_profile_plan* plan = NULL;
  tide_profile_plan_options options = TIDE_PROFILE_PLAN_OPTIONS_INIT;
  uint64_t end = 0;
  FUZZ_REQUIRE(requests != NULL);
  options.planner = TIDE_PROFILE_TOP_FIT;
  file->at = FUZZ_HEAD;
  for (size_t i = 0; i < count; i++) {
    requests[i].bytes = fuzz_get_number(file);
    requests[i].alignment = fuzz_get_number(file);
    requests[i].lifetime = fuzz_get_number(file);
    const uint64_t offset = requests[i].lifetime > 0 ? fuzz_get_number(file) : 0;
    if (requests[i].lifetime > 0 && offset + requests[i].bytes > end) end = offset + requests[i].bytes;
    requests[i].lifetime = requests[i].lifetime > 0 ? requests[i].lifetime + i : TIDE_PROFILE_NEVER;
  }
  if (tide_profile_plan_new(requests, count, &options, &plan) == TIDE_OK) {
    fuzz_put(file->data + FUZZ_BYTES_AT, end, 8);
    fuzz_put(file->data + FUZZ_HASH_AT, tide_profile_plan_describe(plan).hash, 8);
  }
  tide_profile_plan_free(plan);
  free(requests);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz_file file = { NULL, 0, 0, 0 };
  (void)fuzz_file_write(&file, data, bytes);
  fuzz_check_file(&file);
  fuzz_mend_checksum(&file);
  fuzz_check_file(&file);
  fuzz_mend_head(&file);
  fuzz_mend_checksum(&file);
  fuzz_check_file(&file);
  free(file.data);
  return 0;
}
