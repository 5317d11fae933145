// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Plans in files: round trips, every kind of damage, wrong content with a right checksum, and failing
// sources, sinks and heaps. The tests have their own encoder.
#include "base/crc.h"
#include "machine/counting_heap.h"
#include "planned.h"

#define FILE_MOST 1024
#define HEAD_BYTES 40

typedef struct plan_file {
  uint8_t data[FILE_MOST];
  size_t bytes;
  size_t at;     // read so far
  size_t piece;  // most that is read or written at a time
  size_t limit;  // bytes after which reading or writing fails
} plan_file;

static const tide_profile_request few[] = { { 100, 64, 2, 0 },
                                            { 200, 64, 3, 0 },
                                            { 70000, 128, TIDE_PROFILE_NEVER, 0 },
                                            { 300, 1, 5, 0 },
                                            { 50, 2, 5, 0 } };
#define FEW (sizeof few / sizeof *few)

// ---------------------------------------------------------------------------------------------------
// Files in memory

static tide_status file_write(void* user, const void* data, size_t bytes) {
  plan_file* const f = user;
  T_CHECK(bytes > 0);
  if (f->bytes + bytes > f->limit) return TIDE_ERR_ACCESS;
  T_LE(f->bytes + bytes, FILE_MOST);
  memcpy(f->data + f->bytes, data, bytes);
  f->bytes += bytes;
  return TIDE_OK;
}

static tide_status file_read(void* user, void* out, size_t room, size_t* out_bytes) {
  plan_file* const f = user;
  size_t bytes = f->bytes - f->at;
  T_CHECK(room > 0);
  *out_bytes = 0;
  if (f->at >= f->limit) return TIDE_ERR_ACCESS;
  if (bytes > room) bytes = room;
  if (bytes > f->piece) bytes = f->piece;
  memcpy(out, f->data + f->at, bytes);
  f->at += bytes;
  *out_bytes = bytes;
  return TIDE_OK;
}

static void file_init(plan_file* f) {
  memset(f, 0, sizeof *f);
  f->piece = f->limit = SIZE_MAX;
}

static void file_of_plan(plan_file* f, const tide_profile_plan* plan) {
  file_init(f);
  const tide_sink sink = { file_write, f };
  T_OK(tide_profile_plan_write(plan, &sink));
}

static tide_status file_load(plan_file* f, const tide_heap* heap, tide_profile_plan** out) {
  const tide_source source = { file_read, f };
  f->at = 0;
  *out = (tide_profile_plan*)(uintptr_t)1;
  const tide_status status = tide_profile_plan_read(&source, heap, out);
  T_EQ(*out == NULL, status != TIDE_OK);
  return status;
}

static void file_of_few(plan_file* f) {
  tide_profile_plan* const plan = planned_new(few, FEW, TIDE_PROFILE_SMALLEST);
  file_of_plan(f, plan);
  tide_profile_plan_free(plan);
}

static void expect_refused(plan_file* f, tide_status want) {
  tide_profile_plan* plan = NULL;
  T_STATUS(file_load(f, NULL, &plan), want);
}

// Refused as damaged, or as something newer.
static void expect_damaged(plan_file* f, const char* what, size_t at) {
  tide_profile_plan* plan = NULL;
  const tide_status status = file_load(f, NULL, &plan);
  if (status != TIDE_ERR_FORMAT && status != TIDE_ERR_UNSUPPORTED)
    T_FAIL("%s %zu: %s", what, at, tide_status_name(status));
}

// ---------------------------------------------------------------------------------------------------
// Files made by hand

static void put_fixed(plan_file* f, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) f->data[f->bytes++] = (uint8_t)(number >> (8 * i));
}

static void put_number(plan_file* f, uint64_t number) {
  for (; number >= 128; number /= 128) f->data[f->bytes++] = (uint8_t)(128 + number % 128);
  f->data[f->bytes++] = (uint8_t)number;
}

static void put_checksum(plan_file* f) {
  static tide__crc crc;
  tide__crc_init(&crc);
  put_fixed(f, tide__crc_of(&crc, f->data, f->bytes), 4);
}

// The checksum of a file whose other bytes were changed.
static void mend_checksum(plan_file* f) {
  f->bytes -= 4;
  put_checksum(f);
}

typedef struct forged_head {
  uint32_t version;
  uint32_t planner;
  uint64_t count;
  uint64_t bytes;
  uint64_t hash;
} forged_head;

static void put_head(plan_file* f, const forged_head* head) {
  memcpy(f->data, "TIDEPLAN", 8);
  f->bytes = 8;
  put_fixed(f, head->version, 4);
  put_fixed(f, head->planner, 4);
  put_fixed(f, head->count, 8);
  put_fixed(f, head->bytes, 8);
  put_fixed(f, head->hash, 8);
}

static void put_requests(plan_file* f, const tide_profile_request* requests, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const bool is_managed = oracle_is_managed(&requests[i]);
    put_number(f, requests[i].bytes);
    put_number(f, requests[i].alignment);
    put_number(f, is_managed ? requests[i].lifetime - i : 0);
    if (is_managed) put_number(f, requests[i].offset);
  }
}

// A release, as the distance from the one before: even forwards, odd backwards.
static void put_release(plan_file* f, size_t request, size_t before) {
  put_number(f, request >= before ? 2 * (uint64_t)(request - before) : 2 * (uint64_t)(before - request) - 1);
}

// What is released, in the order of time.
static void put_releases(plan_file* f, const tide_profile_request* requests, size_t count) {
  size_t before = 0;
  for (uint64_t time = 0; time <= count; time++) {
    for (size_t i = 0; i < count; i++) {
      if (requests[i].lifetime != time) continue;
      put_release(f, i, before);
      before = i;
    }
  }
}

static void forge(plan_file* f, const forged_head* head, const tide_profile_request* requests, size_t count) {
  file_init(f);
  put_head(f, head);
  put_requests(f, requests, count);
  put_releases(f, requests, count);
  put_checksum(f);
}

// The head and the requests, with their offsets, of the plan of `few`.
static forged_head forged_few(tide_profile_request* out) {
  tide_profile_plan* const plan = planned_new(few, FEW, TIDE_PROFILE_SMALLEST);
  const tide_profile_plan_info info = tide_profile_plan_describe(plan);
  for (size_t i = 0; i < FEW; i++) out[i] = tide_profile_plan_request(plan, i);
  tide_profile_plan_free(plan);
  return (forged_head){ 1, (uint32_t)info.planner, FEW, info.bytes, info.hash };
}

// ---------------------------------------------------------------------------------------------------
// Round trips

static void expect_equal_plans(const tide_profile_plan* a, const tide_profile_plan* b) {
  const tide_profile_plan_info one = tide_profile_plan_describe(a);
  const tide_profile_plan_info two = tide_profile_plan_describe(b);
  T_EQ(one.count, two.count);
  T_EQ(one.managed, two.managed);
  T_EQ(one.bytes, two.bytes);
  T_EQ(one.escape_bytes, two.escape_bytes);
  T_EQ(one.lower_bound, two.lower_bound);
  T_EQ(one.alignment, two.alignment);
  T_EQ(one.hash, two.hash);
  T_EQ(one.planner, two.planner);
  for (size_t i = 0; i < one.count; i++) {
    const tide_profile_request first = tide_profile_plan_request(a, i);
    const tide_profile_request second = tide_profile_plan_request(b, i);
    T_EQ(memcmp(&first, &second, sizeof first), 0);
  }
}

static void expect_round_trip(const tide_profile_request* requests, size_t count,
                              tide_profile_planner planner) {
  tide_profile_plan* const plan = planned_new(requests, count, planner);
  tide_profile_plan* again = NULL;
  plan_file f;
  file_of_plan(&f, plan);
  for (size_t piece = 1; piece < 100; piece += 13) {
    f.piece = piece;
    T_OK(file_load(&f, NULL, &again));
    expect_equal_plans(plan, again);
    tide_profile_plan_free(again);
  }
  tide_profile_plan_free(plan);
}

T_TEST(test_profile_file__a_plan_comes_back) {
  expect_round_trip(few, FEW, TIDE_PROFILE_SMALLEST);
  expect_round_trip(few, FEW, TIDE_PROFILE_BEST_FIT);
  expect_round_trip(few, FEW, TIDE_PROFILE_TOP_FIT);
  expect_round_trip(few, 0, TIDE_PROFILE_SMALLEST);
}

T_TEST_OVER(test_profile_file__random_plans_come_back, planned_kinds) {
  tide_profile_request requests[40];
  for (uint64_t round = 0; round < t_scaled(50); round++) {
    t_rng rng = t_rng_new(round);
    planned_random(requests, 40, t_variant(), &rng);
    for (size_t i = 0; i < 40; i++) {
      requests[i].alignment = 1u << t_rng_below(&rng, 10);
      if (t_rng_below(&rng, 5) == 0) requests[i].lifetime = TIDE_PROFILE_NEVER;
    }
    expect_round_trip(requests, 40, TIDE_PROFILE_BEST_FIT);
  }
}

// The bytes are what docs/profile.md says.
T_TEST(test_profile_file__bytes_are_as_documented) {
  tide_profile_request requests[FEW];
  const forged_head head = forged_few(requests);
  plan_file written;
  plan_file forged;
  file_of_few(&written);

  forge(&forged, &head, requests, FEW);

  T_EQ(written.bytes, forged.bytes);
  T_EQ(memcmp(written.data, forged.data, forged.bytes), 0);
}

// ---------------------------------------------------------------------------------------------------
// Damage

T_TEST(test_profile_file__every_changed_byte_is_noticed) {
  plan_file f;
  file_of_few(&f);
  for (size_t at = 0; at < f.bytes; at++) {
    // One bit after the other where everything takes long.
    for (unsigned change = 1; change < 256; change += T_HAS_THREAD_SANITIZER ? change : 1) {
      f.data[at] ^= (uint8_t)change;
      expect_damaged(&f, "changed byte", at);
      f.data[at] ^= (uint8_t)change;
    }
  }
}

T_TEST(test_profile_file__every_truncation_is_noticed) {
  plan_file f;
  file_of_few(&f);
  const size_t bytes = f.bytes;
  for (f.bytes = 0; f.bytes < bytes; f.bytes++) expect_damaged(&f, "cut off at byte", f.bytes);
}

T_TEST(test_profile_file__bytes_behind_the_end_are_noticed) {
  plan_file f;
  file_of_few(&f);
  f.data[f.bytes++] = 0;
  expect_damaged(&f, "longer than", f.bytes);
  mend_checksum(&f);
  expect_damaged(&f, "longer, with a checksum, than", f.bytes);
}

T_TEST(test_profile_file__something_else_is_no_plan) {
  plan_file f;
  file_init(&f);
  expect_refused(&f, TIDE_ERR_FORMAT);
  f.bytes = 500;
  expect_refused(&f, TIDE_ERR_FORMAT);
  memset(f.data, 0xff, 500);
  expect_refused(&f, TIDE_ERR_FORMAT);
}

T_TEST(test_profile_file__a_newer_version_is_not_supported) {
  tide_profile_request requests[FEW];
  forged_head head = forged_few(requests);
  plan_file f;
  head.version = 2;
  forge(&f, &head, requests, FEW);

  expect_refused(&f, TIDE_ERR_UNSUPPORTED);
}

// ---------------------------------------------------------------------------------------------------
// A right checksum and wrong content

static void expect_forgery_refused(const forged_head* head, const tide_profile_request* requests,
                                   size_t count) {
  plan_file f;
  forge(&f, head, requests, count);
  expect_refused(&f, TIDE_ERR_FORMAT);
}

T_TEST(test_profile_file__offsets_that_overlap_are_refused) {
  tide_profile_request requests[FEW];
  const forged_head head = forged_few(requests);
  plan_file f;
  tide_profile_plan* plan = NULL;
  forge(&f, &head, requests, FEW);
  T_OK(file_load(&f, NULL, &plan));  // the forger knows how
  tide_profile_plan_free(plan);

  requests[1].offset = requests[0].offset;

  expect_forgery_refused(&head, requests, FEW);
}

T_TEST(test_profile_file__offsets_beyond_the_arena_are_refused) {
  const uint64_t offsets[] = { 1000000, (uint64_t)1 << 62, UINT64_MAX, UINT64_MAX - 299 };
  for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
    tide_profile_request requests[FEW];
    const forged_head head = forged_few(requests);
    requests[3].offset = offsets[i];
    expect_forgery_refused(&head, requests, FEW);
  }
}

T_TEST(test_profile_file__offsets_that_are_not_aligned_are_refused) {
  const tide_profile_request one[] = { { 100, 64, 1, 64 } };
  tide_profile_plan* const plan = planned_new(one, 1, TIDE_PROFILE_SMALLEST);
  const forged_head head = { 1, 0, 1, 132, tide_profile_plan_describe(plan).hash };
  const tide_profile_request moved[] = { { 100, 64, 1, 32 } };
  tide_profile_plan_free(plan);

  expect_forgery_refused(&head, moved, 1);
}

T_TEST(test_profile_file__requests_that_make_no_sense_are_refused) {
  for (int kind = 0; kind < 5; kind++) {
    tide_profile_request requests[FEW];
    const forged_head head = forged_few(requests);
    if (kind == 0) requests[0].bytes = 0;
    if (kind == 1) requests[0].alignment = 48;
    if (kind == 2) requests[0].lifetime = FEW + 1;
    if (kind == 3) requests[1].lifetime = 0;  // a duration that wraps
    if (kind == 4) requests[0].bytes = UINT64_MAX;
    expect_forgery_refused(&head, requests, FEW);
  }
}

T_TEST(test_profile_file__a_head_of_another_plan_is_refused) {
  for (int kind = 0; kind < 7; kind++) {
    tide_profile_request requests[FEW];
    forged_head head = forged_few(requests);
    if (kind == 0) head.planner = 3;
    if (kind == 1) head.count = FEW - 1;
    if (kind == 2) head.count = FEW + 1;
    if (kind == 3) head.count = UINT64_MAX;
    if (kind == 4) head.bytes += 1;
    if (kind == 5) head.bytes = UINT64_MAX;
    if (kind == 6) head.hash += 1;
    expect_forgery_refused(&head, requests, FEW);
  }
}

// One request of which each number in turn is written in a way that it is never written.
T_TEST(test_profile_file__numbers_that_are_not_written_so_are_refused) {
  const uint8_t overlong[] = { 0x81, 0x80, 0x00 };
  const uint8_t too_large[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02 };
  const uint8_t endless[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01 };
  const struct {
    const uint8_t* bytes;
    size_t count;
  } wrong[] = { { overlong, 3 }, { too_large, 10 }, { endless, 12 } };
  const tide_profile_request one[] = { { 1, 1, 1, 0 } };
  tide_profile_plan* const plan = planned_new(one, 1, TIDE_PROFILE_SMALLEST);
  const forged_head head = { 1, 0, 1, 1, tide_profile_plan_describe(plan).hash };
  tide_profile_plan_free(plan);
  for (size_t kind = 0; kind < 3; kind++) {
    for (size_t number = 0; number < 5; number++) {
      plan_file f;
      file_init(&f);
      put_head(&f, &head);
      for (size_t i = 0; i < number; i++) put_number(&f, i >= 3 ? 0 : 1);
      for (size_t i = 0; i < wrong[kind].count; i++) put_fixed(&f, wrong[kind].bytes[i], 1);
      for (size_t i = number + 1; i < 5; i++) put_number(&f, i >= 3 ? 0 : 1);
      put_checksum(&f);
      expect_refused(&f, TIDE_ERR_FORMAT);
    }
  }
}

// Releases of `few`, whose third request is never released: each must stand there once, in the order of time.
T_TEST(test_profile_file__releases_that_make_no_sense_are_refused) {
  const size_t sound[] = { 0, 1, 4, 3 };  // those of one time in any order
  const size_t wrong[][4] = {
    { 1, 0, 3, 4 }, { 0, 0, 3, 4 }, { 0, 1, 2, 3 }, { 0, 1, 3, 5 }, { 0, 1, 3, 3 }
  };
  tide_profile_request requests[FEW];
  const forged_head head = forged_few(requests);
  tide_profile_plan* plan = NULL;
  for (size_t kind = 0; kind < 6; kind++) {
    const size_t* const order = kind < 5 ? wrong[kind] : sound;
    plan_file f;
    file_init(&f);
    put_head(&f, &head);
    put_requests(&f, requests, FEW);
    for (size_t i = 0; i < 4; i++) put_release(&f, order[i], i > 0 ? order[i - 1] : 0);
    put_checksum(&f);
    T_STATUS(file_load(&f, NULL, &plan), kind < 5 ? TIDE_ERR_FORMAT : TIDE_OK);
    tide_profile_plan_free(plan);
  }
}

// Any change behind a right checksum: refused, or a plan that is sound.
T_TEST(test_profile_file__random_content_is_refused_or_sound) {
  tide_profile_request requests[64];
  plan_file sound;
  size_t accepted = 0;
  file_of_few(&sound);
  for (uint64_t round = 0; round < t_scaled_least(T_HAS_THREAD_SANITIZER ? 5000 : 20000, 8000); round++) {
    t_rng rng = t_rng_new(round);
    plan_file f = sound;
    tide_profile_plan* plan = NULL;
    for (uint64_t changes = 1 + t_rng_below(&rng, 3); changes > 0; changes--)
      f.data[HEAD_BYTES + t_rng_below(&rng, f.bytes - 4 - HEAD_BYTES)] ^= (uint8_t)t_rng_below(&rng, 256);
    mend_checksum(&f);

    const tide_status status = file_load(&f, NULL, &plan);

    T_CHECK(status == TIDE_OK || status == TIDE_ERR_FORMAT);
    if (status != TIDE_OK) continue;
    const tide_profile_plan_info info = tide_profile_plan_describe(plan);
    for (size_t i = 0; i < info.count; i++) requests[i] = tide_profile_plan_request(plan, i);
    oracle_expect_sound(requests, info.count, info.bytes);
    tide_profile_plan_free(plan);
    accepted++;
  }
  T_LT(0, accepted);  // some changes undo one another
}

// ---------------------------------------------------------------------------------------------------
// Failures

T_TEST(test_profile_file__what_the_source_returns_is_returned) {
  plan_file f;
  file_of_few(&f);
  f.piece = 1;
  for (f.limit = 0; f.limit < f.bytes; f.limit++) expect_refused(&f, TIDE_ERR_ACCESS);
}

T_TEST(test_profile_file__what_the_sink_returns_is_returned) {
  tide_profile_plan* const plan = planned_new(few, FEW, TIDE_PROFILE_SMALLEST);
  plan_file f;
  const tide_sink sink = { file_write, &f };
  file_of_plan(&f, plan);
  const size_t bytes = f.bytes;
  for (size_t limit = 0; limit < bytes; limit++) {
    file_init(&f);
    f.limit = limit;
    T_STATUS(tide_profile_plan_write(plan, &sink), TIDE_ERR_ACCESS);
  }
  tide_profile_plan_free(plan);
}

T_TEST(test_profile_file__every_failing_record_is_reported) {
  plan_file f;
  bool has_failed = true;
  file_of_few(&f);
  for (size_t n = 0; has_failed; n++) {
    counting_heap heap;
    tide_profile_plan* plan = NULL;
    counting_heap_init(&heap, n, n % 2 == 0);

    const tide_status status = file_load(&f, &heap.heap, &plan);

    has_failed = atomic_load(&heap.has_failed);
    T_STATUS(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    tide_profile_plan_free(plan);
    T_EQ(atomic_load(&heap.outstanding), 0);
  }
}

T_TEST(test_profile_file__writing_reports_every_failing_record) {
  counting_heap heap;
  tide_profile_plan_options options = TIDE_PROFILE_PLAN_OPTIONS_INIT;
  tide_profile_plan* plan = NULL;
  plan_file f;
  const tide_sink sink = { file_write, &f };
  tide_status status = TIDE_ERR_NO_MEMORY;
  counting_heap_init(&heap, SIZE_MAX, false);
  options.heap = &heap.heap;
  T_OK(tide_profile_plan_new(few, FEW, &options, &plan));
  for (size_t n = 0; status != TIDE_OK; n++) {
    file_init(&f);
    atomic_store(&heap.has_failed, false);
    atomic_store(&heap.fail_at, atomic_load(&heap.allocs) + n);
    status = tide_profile_plan_write(plan, &sink);
    T_STATUS(status, atomic_load(&heap.has_failed) ? TIDE_ERR_NO_MEMORY : TIDE_OK);
  }
  tide_profile_plan_free(plan);
  T_EQ(atomic_load(&heap.outstanding), 0);
}

T_TEST(test_profile_file__bad_arguments_are_refused) {
  const tide_source no_source = { NULL, NULL };
  const tide_sink no_sink = { NULL, NULL };
  tide_profile_plan* plan = planned_new(few, FEW, TIDE_PROFILE_SMALLEST);
  tide_profile_plan* other = NULL;
  plan_file f;
  const tide_source source = { file_read, &f };
  file_of_plan(&f, plan);

  T_STATUS(tide_profile_plan_write(NULL, &no_sink), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_plan_write(plan, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_plan_write(plan, &no_sink), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_plan_read(NULL, NULL, &other), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_plan_read(&no_source, NULL, &other), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_profile_plan_read(&source, NULL, NULL), TIDE_ERR_ARGUMENT);
  tide_profile_plan_free(plan);
}
