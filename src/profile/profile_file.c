// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Plans in files: a header of 40 bytes, a few numbers per request, and a checksum. docs/profile.md has the
// format. A file is accepted only if its checksum is right, its requests are valid, and its offsets pass
// the verifier.
#include <string.h>

#include "base/arith.h"
#include "base/crc.h"
#include "base/error.h"
#include "base/heap.h"
#include "profile/profile_plan.h"
#include "profile/requests.h"

#define FILE_VERSION 1u
#define FILE_HEAD_BYTES 40u
#define FILE_SUM_BYTES 4u
#define FILE_REQUEST_MIN_BYTES 3u   // bytes, alignment, lifetime
#define FILE_REQUEST_MAX_BYTES 50u  // five numbers of up to ten bytes
#define FILE_READ_BYTES 65536u

static const uint8_t file_magic[8] = { 'T', 'I', 'D', 'E', 'P', 'L', 'A', 'N' };

// ---------------------------------------------------------------------------------------------------
// Numbers

static void put_fixed(uint8_t* at, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) at[i] = (uint8_t)(number >> (8 * i));
}

static uint64_t get_fixed(const uint8_t* at, size_t bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes; i++) number |= (uint64_t)at[i] << (8 * i);
  return number;
}

// Seven bits a byte, the lowest first; the highest bit says that there are more.
static uint8_t* put_number(uint8_t* at, uint64_t number) {
  for (; number >= 128; number >>= 7) *at++ = (uint8_t)(number | 128);
  *at++ = (uint8_t)number;
  return at;
}

typedef struct number_reader {
  const uint8_t* at;
  const uint8_t* end;
  bool is_good;
} number_reader;

static uint64_t get_number(number_reader* reader) {
  uint64_t number = 0;
  for (unsigned shift = 0; shift < 64 && reader->at < reader->end; shift += 7) {
    const uint8_t byte = *reader->at++;
    number |= (uint64_t)(byte & 127) << shift;
    if (byte >= 128) continue;
    // The tenth byte has one bit, and the last byte must not be a superfluous zero.
    if ((shift == 63 && byte > 1) || (byte == 0 && shift != 0)) break;
    return number;
  }
  reader->is_good = false;
  return 0;
}

// ---------------------------------------------------------------------------------------------------
// Writing

static uint8_t* file_put_request(uint8_t* at, const tide__step* step, size_t index) {
  const bool is_managed = step->lifetime != TIDE__STEP_NEVER;
  at = put_number(at, step->bytes);
  at = put_number(at, step->alignment);
  at = put_number(at, is_managed ? step->lifetime - index : 0);
  return is_managed ? put_number(at, step->offset) : at;
}

static size_t file_encode(const tide_profile_plan* plan, uint8_t* out) {
  memcpy(out, file_magic, sizeof file_magic);
  put_fixed(out + 8, FILE_VERSION, 4);
  put_fixed(out + 12, (uint32_t)plan->info.planner, 4);
  put_fixed(out + 16, plan->info.count, 8);
  put_fixed(out + 24, plan->info.bytes, 8);
  put_fixed(out + 32, plan->info.hash, 8);
  uint8_t* at = out + FILE_HEAD_BYTES;
  for (size_t i = 0; i < plan->info.count; i++) at = file_put_request(at, &plan->steps[i], i);
  uint32_t last = 0;
  for (size_t i = 0; i < plan->info.managed; i++) {
    const uint32_t request = plan->endings[i].request;
    at =
        put_number(at, request >= last ? 2 * (uint64_t)(request - last) : 2 * (uint64_t)(last - request) - 1);
    last = request;
  }
  return (size_t)(at - out);
}

tide_status tide_profile_plan_write(const tide_profile_plan* plan, const tide_sink* sink) {
  TIDE_REQUIRE(plan != NULL && sink != NULL && sink->write != NULL, TIDE_ERR_ARGUMENT,
               "plan_write: the plan or the sink is NULL");
  const size_t room = FILE_HEAD_BYTES + plan->info.count * FILE_REQUEST_MAX_BYTES + FILE_SUM_BYTES;
  uint8_t* const data = tide__heap_alloc(plan->heap, 1, room);
  tide__crc* const crc = tide__heap_alloc(plan->heap, 1, sizeof *crc);
  tide_status status = TIDE_OK;
  if (data == NULL || crc == NULL) {
    status = TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to write a plan of %zu requests", plan->info.count);
  } else {
    tide__crc_init(crc);
    const size_t bytes = file_encode(plan, data);
    put_fixed(data + bytes, tide__crc_of(crc, data, bytes), FILE_SUM_BYTES);
    status = sink->write(sink->user, data, bytes + FILE_SUM_BYTES);
  }
  tide__heap_release(plan->heap, crc, 1, sizeof *crc);
  tide__heap_release(plan->heap, data, 1, room);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Reading

// All bytes of a source.
typedef struct file_bytes {
  const tide_heap* heap;  // borrowed
  uint8_t* data;          // owned
  size_t capacity;
  size_t bytes;
} file_bytes;

static tide_status file_read_all(file_bytes* file, const tide_source* source) {
  for (;;) {
    const bool has_room =
        tide__heap_grow(file->heap, (void**)&file->data, &file->capacity, file->bytes + FILE_READ_BYTES, 1);
    TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "no memory to read a plan of more than %zu bytes",
                 file->bytes);
    const size_t room = file->capacity - file->bytes;
    size_t count = 0;
    TIDE_TRY(source->read(source->user, file->data + file->bytes, room, &count));
    TIDE_REQUIRE(count <= room, TIDE_ERR_ARGUMENT, "the source gave %zu bytes where there was room for %zu",
                 count, room);
    if (count == 0) return TIDE_OK;
    file->bytes += count;
  }
}

static tide_status file_check_head(const file_bytes* file) {
  const bool is_plan = file->bytes >= FILE_HEAD_BYTES + FILE_SUM_BYTES &&
                       memcmp(file->data, file_magic, sizeof file_magic) == 0;
  TIDE_REQUIRE(is_plan, TIDE_ERR_FORMAT, "%zu bytes that do not begin as a plan does", file->bytes);
  tide__crc* const crc = tide__heap_alloc(file->heap, 1, sizeof *crc);
  TIDE_REQUIRE(crc != NULL, TIDE_ERR_NO_MEMORY, "no memory to check a plan");
  tide__crc_init(crc);
  const size_t summed = file->bytes - FILE_SUM_BYTES;
  const uint32_t sum = tide__crc_of(crc, file->data, summed);
  tide__heap_release(file->heap, crc, 1, sizeof *crc);
  const uint64_t written = get_fixed(file->data + summed, FILE_SUM_BYTES);
  TIDE_REQUIRE(sum == written, TIDE_ERR_FORMAT, "the plan is damaged: its checksum is %08llx and not %08x",
               (unsigned long long)written, sum);
  const uint64_t version = get_fixed(file->data + 8, 4);
  TIDE_REQUIRE(version == FILE_VERSION, TIDE_ERR_UNSUPPORTED,
               "the plan has version %llu; only version %u is supported", (unsigned long long)version,
               FILE_VERSION);
  return TIDE_OK;
}

// The contents of a file.
typedef struct file_plan {
  const tide_heap* heap;           // borrowed
  tide_profile_request* requests;  // owned
  uint32_t* releases;              // owned; the managed requests in the order of their releases
  bool* is_released;               // owned; by request
  size_t count;
  size_t managed;
} file_plan;

static tide_status file_plan_alloc(file_plan* plan) {
  plan->requests = tide__heap_alloc(plan->heap, plan->count + 1, sizeof *plan->requests);
  plan->releases = tide__heap_alloc(plan->heap, plan->count + 1, sizeof *plan->releases);
  plan->is_released = tide__heap_alloc(plan->heap, plan->count + 1, sizeof *plan->is_released);
  TIDE_REQUIRE(plan->requests != NULL && plan->releases != NULL && plan->is_released != NULL,
               TIDE_ERR_NO_MEMORY, "no memory to read a plan of %zu requests", plan->count);
  return TIDE_OK;
}

static void file_plan_free(file_plan* plan) {
  tide__heap_release(plan->heap, plan->is_released, plan->count + 1, sizeof *plan->is_released);
  tide__heap_release(plan->heap, plan->releases, plan->count + 1, sizeof *plan->releases);
  tide__heap_release(plan->heap, plan->requests, plan->count + 1, sizeof *plan->requests);
}

static void file_get_request(number_reader* reader, tide_profile_request* request, size_t index) {
  request->bytes = get_number(reader);
  request->alignment = get_number(reader);
  const uint64_t duration = get_number(reader);
  request->lifetime = TIDE_PROFILE_NEVER;
  if (duration == 0) return;
  if (!tide__add(index, duration, &request->lifetime)) reader->is_good = false;
  request->offset = get_number(reader);
}

// The released requests, each as its distance d from the one before: 2 d if it is later, 2 d - 1 if it is
// earlier. Each occurs once, and lifetimes never fall.
static void file_get_releases(number_reader* reader, file_plan* plan) {
  uint64_t request = 0;
  uint64_t time = 0;
  for (size_t i = 0; i < plan->managed && reader->is_good; i++) {
    const uint64_t distance = get_number(reader);
    request = (distance & 1) == 0 ? request + distance / 2 : request - (distance / 2 + 1);
    const bool is_right = request < plan->count && tide__request_is_managed(&plan->requests[request]) &&
                          !plan->is_released[request] && plan->requests[request].lifetime >= time;
    reader->is_good = reader->is_good && is_right;
    if (!is_right) return;
    plan->is_released[request] = true;
    plan->releases[i] = (uint32_t)request;
    time = plan->requests[request].lifetime;
  }
}

static tide_status file_decode(const file_bytes* file, file_plan* plan) {
  number_reader reader = { file->data + FILE_HEAD_BYTES, file->data + file->bytes - FILE_SUM_BYTES, true };
  for (size_t i = 0; i < plan->count && reader.is_good; i++) {
    file_get_request(&reader, &plan->requests[i], i);
    plan->managed += tide__request_is_managed(&plan->requests[i]);
  }
  file_get_releases(&reader, plan);
  TIDE_REQUIRE(reader.is_good && reader.at == reader.end, TIDE_ERR_FORMAT,
               "the plan does not contain exactly its %zu requests and their releases", plan->count);
  if (tide__requests_check(plan->requests, plan->count) != TIDE_OK) {
    const tide_error error = *tide_last_error();
    return TIDE_FAIL(TIDE_ERR_FORMAT, "the plan is invalid: %.200s", error.text);
  }
  return TIDE_OK;
}

static tide_status file_build(const file_bytes* file, file_plan* plan, tide_profile_plan** out) {
  TIDE_TRY(file_decode(file, plan));
  const uint64_t planner = get_fixed(file->data + 12, 4);
  const uint64_t bytes = get_fixed(file->data + 24, 8);
  TIDE_REQUIRE(planner <= TIDE_PROFILE_TOP_FIT && bytes <= TIDE_PLAN_MAX_BYTES, TIDE_ERR_FORMAT,
               "the plan has planner %llu and %llu bytes", (unsigned long long)planner,
               (unsigned long long)bytes);
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  TIDE_TRY(tide_profile_verify(plan->requests, plan->count, bytes, plan->heap, &check));
  TIDE_REQUIRE(check.fault == TIDE_PLAN_NO_FAULT, TIDE_ERR_FORMAT, "the plan is wrong: %s", check.text);
  tide__requests_line_up(plan->requests, plan->count);
  tide_profile_plan* made = NULL;
  TIDE_TRY(tide__profile_plan_make(plan->requests, plan->releases, plan->count, (tide_profile_planner)planner,
                                   plan->heap, &made));
  if (made->info.bytes != bytes || made->info.hash != get_fixed(file->data + 32, 8)) {
    tide_profile_plan_free(made);
    return TIDE_FAIL(TIDE_ERR_FORMAT, "the header of the plan does not match its requests");
  }
  *out = made;
  return TIDE_OK;
}

static tide_status file_read_plan(file_bytes* file, const tide_source* source, tide_profile_plan** out) {
  TIDE_TRY(file_read_all(file, source));
  TIDE_TRY(file_check_head(file));
  const uint64_t count = get_fixed(file->data + 16, 8);
  const size_t room = file->bytes - FILE_HEAD_BYTES - FILE_SUM_BYTES;
  TIDE_REQUIRE(count <= room / FILE_REQUEST_MIN_BYTES, TIDE_ERR_FORMAT,
               "%llu requests do not fit into %zu bytes", (unsigned long long)count, room);
  file_plan plan = { .heap = file->heap, .count = count };
  tide_status status = file_plan_alloc(&plan);
  if (status == TIDE_OK) status = file_build(file, &plan, out);
  file_plan_free(&plan);
  return status;
}

tide_status tide_profile_plan_read(const tide_source* source, const tide_heap* heap,
                                   tide_profile_plan** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "plan_read: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(source != NULL && source->read != NULL && tide__heap_is_valid(heap), TIDE_ERR_ARGUMENT,
               "plan_read: the source is NULL, or the heap lacks a function");
  file_bytes file = { .heap = tide__heap_or_system(heap) };
  const tide_status status = file_read_plan(&file, source, out);
  tide__heap_release(file.heap, file.data, file.capacity, 1);
  return status;
}
