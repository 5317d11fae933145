// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memos: what the last run had, so that the next one makes it ahead (ahead.c). A memo is a text:
//
//   tidemark memo 2
//   peak BYTES                of large blocks
//   stream NUMBER             in the order of their first use in the default pool, ascending
//   handles COUNT BYTES       of this stream, by address; any number of lines
//   view NUMBER               a view of this stream; any number
//   part NUMBER OFFSET BYTES  whole handles of a stream, by their place in its memory; one line or more
//   end
//
// Version 1 had no views.
//
// A memo is believed as little as any file: it only says what may be made ahead, which goes back if nobody
// takes it.
#include "device/tide/memo.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/sys.h"
#include "device/tide/home.h"

#define TITLE "tidemark memo 2\n"
#define TITLE_BEFORE "tidemark memo 1\n"
#define FILE_MOST ((size_t)1 << 20)  // bytes
#define HANDLE_MOST ((uint64_t)1 << 40)
#define HANDLE_LEAST ((uint64_t)2 << 20)
enum { STREAMS_MOST = 1024, COUNT_MOST = 1 << 20, DIGITS_MOST = 18, PARTS_MOST = 8192 };
// No handle is smaller than about this part of the peak: as a request that grows at that peak would make
// them.
enum { LEAST_PARTS = 1024 };

void tide__memo_free(tide_device_cache* device, tide__memo* memo) {
  if (memo == NULL) return;
  tide__heap_release(device->heap, memo->runs, memo->run_capacity, sizeof *memo->runs);
  tide__heap_release(device->heap, memo->streams, memo->stream_capacity, sizeof *memo->streams);
  tide__heap_release(device->heap, memo->parts, memo->part_capacity, sizeof *memo->parts);
  tide__heap_release(device->heap, memo->views, memo->view_capacity, sizeof *memo->views);
  tide__heap_release(device->heap, memo, 1, sizeof *memo);
}

// ---------------------------------------------------------------------------------------------------
// The memory of a stream

tide__lane* tide__memo_lane(tide_device_cache* device, uint32_t number) {
  tide__lane* lane = tide__lane_next(device, &device->default_pool, NULL);
  while (lane != NULL && (lane->number != number || lane->is_unlisted))
    lane = tide__lane_next(device, &device->default_pool, lane);
  return lane;
}

// A walk through the handles of a lane, homes by age, in each by address.
typedef struct handle_walk {
  const tide__lane* lane;
  tide__link* link;  // of the segment; the list itself at the end
  size_t index;      // of the next handle in it
} handle_walk;

static handle_walk walk_begin(const tide__lane* lane) {
  return (handle_walk){ lane, lane->segments.next, 0 };
}

// The next handle; NULL at the end.
static tide__handle* walk_next(handle_walk* walk) {
  for (; walk->link != &walk->lane->segments; walk->link = walk->link->next, walk->index = 0) {
    const tide__segment* const segment = TIDE_OWNER(walk->link, tide__segment, link);
    if (segment->home == NULL || segment->is_small) continue;
    if (walk->index < segment->home->count) return segment->home->handles[walk->index++];
  }
  return NULL;
}

// Was it made ahead and never taken? It is not needed the next time.
static bool handle_is_ahead(const tide__handle* handle) {
  const tide__block* const ahead = handle->home->home->ahead;
  return ahead != NULL && handle->address >= ahead->address && handle->address < tide__block_end(ahead);
}

size_t tide__memo_part_handles(tide_device_cache* device, const tide__memo_part* part, tide__handle** out,
                               size_t capacity, bool* out_differs) {
  const tide__lane* const lane = tide__memo_lane(device, part->number);
  const uint64_t end = part->offset + part->bytes;
  uint64_t offset = 0;
  size_t count = 0;
  *out_differs = false;
  if (lane == NULL) return 0;
  handle_walk walk = walk_begin(lane);
  while (offset < end) {
    tide__handle* const handle = walk_next(&walk);
    if (handle == NULL) return 0;
    if (offset >= part->offset && count < capacity) out[count] = handle;
    count += offset >= part->offset;
    *out_differs |= offset < part->offset && offset + handle->bytes > part->offset;
    offset += handle->bytes;
  }
  *out_differs |= offset != end;
  return *out_differs ? 0 : count;
}

// ---------------------------------------------------------------------------------------------------
// Using a memo

tide__memo_stream* tide__memo_stream_of(tide__memo* memo, const tide__lane* lane) {
  if (memo == NULL || lane->pool->base.number != TIDE_POOL_DEFAULT || lane->is_unlisted) return NULL;
  for (size_t i = 0; i < memo->stream_count; i++) {
    if (memo->streams[i].number == lane->number) return &memo->streams[i];
  }
  return NULL;
}

// How far it is from an offset in the memory of a stream to the first border of handles that is at least
// `least` bytes away; or to the end.
static uint64_t border_after(const tide__memo* memo, const tide__memo_stream* stream, uint64_t offset,
                             uint64_t least) {
  uint64_t begin = 0;
  for (size_t i = stream->run; i < stream->run + stream->run_count; i++) {
    const tide__memo_run* const run = &memo->runs[i];
    const uint64_t end = begin + run->count * run->bytes;
    if (end >= offset + least) {
      const uint64_t in_run = offset + least > begin ? offset + least - begin : 0;
      return begin + tide__round_up(in_run, run->bytes) - offset;
    }
    begin = end;
  }
  return stream->bytes - offset;
}

// Handles begin and end where those of the memo do, so that its views can be made of them.
uint64_t tide__memo_next(tide_device_cache* device, const tide__memo* memo, const tide__memo_stream* stream) {
  const uint64_t unit = tide__home_unit(device);
  const uint64_t most = tide__max(unit, tide__device_options(device)->tide_most_handle_bytes / unit * unit);
  const uint64_t least = tide__max(unit, (memo->peak / LEAST_PARTS + unit / 2) / unit * unit);
  if (stream->made >= stream->bytes) return 0;
  const uint64_t size = border_after(memo, stream, stream->made, least);
  return tide__min(most, tide__round_up(tide__min(size, stream->bytes - stream->made), unit));
}

// ---------------------------------------------------------------------------------------------------
// Taking a memo

static bool run_add(tide_device_cache* device, tide__memo* memo, uint64_t count, uint64_t bytes) {
  tide__memo_stream* const stream = &memo->streams[memo->stream_count - 1];
  tide__memo_run* const last = stream->run_count > 0 ? &memo->runs[memo->run_count - 1] : NULL;
  stream->bytes += count * bytes;
  if (last != NULL && last->bytes == bytes) {
    last->count += count;
    return true;
  }
  if (!tide__heap_grow(device->heap, (void**)&memo->runs, &memo->run_capacity, memo->run_count + 1,
                       sizeof *memo->runs))
    return false;
  memo->runs[memo->run_count++] = (tide__memo_run){ count, bytes };
  stream->run_count++;
  return true;
}

static bool stream_add(tide_device_cache* device, tide__memo* memo, uint32_t number) {
  if (!tide__heap_grow(device->heap, (void**)&memo->streams, &memo->stream_capacity, memo->stream_count + 1,
                       sizeof *memo->streams))
    return false;
  memo->streams[memo->stream_count++] = (tide__memo_stream){ .number = number, .run = memo->run_count };
  return true;
}

static bool lane_note(tide_device_cache* device, tide__memo* memo, const tide__lane* lane) {
  const tide__handle* handle = NULL;
  handle_walk walk = walk_begin(lane);
  if (!stream_add(device, memo, lane->number)) return false;
  while ((handle = walk_next(&walk)) != NULL) {
    if (!handle_is_ahead(handle) && !run_add(device, memo, 1, handle->bytes)) return false;
  }
  if (memo->streams[memo->stream_count - 1].bytes == 0) memo->stream_count--;
  return true;
}

static bool view_add(tide_device_cache* device, tide__memo* memo, uint32_t number) {
  if (!tide__heap_grow(device->heap, (void**)&memo->views, &memo->view_capacity, memo->view_count + 1,
                       sizeof *memo->views))
    return false;
  memo->views[memo->view_count++] = (tide__memo_view){ .number = number, .part = memo->part_count };
  return true;
}

// Adds a part to the last view, or to its last part if it follows that.
static bool part_add(tide_device_cache* device, tide__memo* memo, const tide__memo_part* part) {
  tide__memo_view* const view = &memo->views[memo->view_count - 1];
  tide__memo_part* const last = view->part_count > 0 ? &memo->parts[memo->part_count - 1] : NULL;
  if (last != NULL && last->number == part->number && last->offset + last->bytes == part->offset) {
    last->bytes += part->bytes;
    return true;
  }
  if (!tide__heap_grow(device->heap, (void**)&memo->parts, &memo->part_capacity, memo->part_count + 1,
                       sizeof *memo->parts))
    return false;
  memo->parts[memo->part_count++] = *part;
  view->part_count++;
  return true;
}

static tide__memo_part part_of(const tide__handle* handle) {
  const tide__lane* const lane = handle->home->lane;
  const tide__handle* before = NULL;
  tide__memo_part part = { lane->number, 0, handle->bytes };
  handle_walk walk = walk_begin(lane);
  while ((before = walk_next(&walk)) != handle) part.offset += handle_is_ahead(before) ? 0 : before->bytes;
  return part;
}

// Views of which a handle is gone, or that no request has used, are of no use the next time; nor is one with
// memory that no other run will have, or that would make the memo too long.
static bool view_note(tide_device_cache* device, tide__memo* memo, const tide__segment* segment) {
  const tide__view* const view = segment->view;
  const size_t part_count = memo->part_count;
  bool is_good = !view->is_broken && !view->is_ahead;
  if (!is_good) return true;
  if (!view_add(device, memo, segment->lane->number)) return false;
  for (size_t i = 0; i < view->count && is_good; i++) {
    const tide__handle* const handle = view->handles[i];
    const tide__lane* const lane = handle->home->lane;
    const bool has_lane = !lane->is_unlisted && lane->number < STREAMS_MOST;
    is_good = has_lane && !handle_is_ahead(handle) && memo->part_count < PARTS_MOST;
    const tide__memo_part part = is_good ? part_of(handle) : (tide__memo_part){ .bytes = 0 };
    if (is_good && !part_add(device, memo, &part)) return false;
  }
  if (is_good) return true;
  memo->part_count = part_count;
  memo->view_count--;
  return true;
}

static bool lane_note_views(tide_device_cache* device, tide__memo* memo, const tide__lane* lane) {
  TIDE_LIST_EACH(it, &lane->segments) {
    const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    if (segment->view != NULL && !view_note(device, memo, segment)) return false;
  }
  return true;
}

static tide_status memo_take(tide_device_cache* device, tide__memo* memo) {
  for (uint32_t number = 0; number < STREAMS_MOST; number++) {
    const tide__lane* const lane = tide__memo_lane(device, number);
    if (lane == NULL) continue;
    TIDE_REQUIRE(lane_note(device, memo, lane) && lane_note_views(device, memo, lane), TIDE_ERR_NO_MEMORY,
                 "device_memo_save: no memory for a memo");
  }
  tide__mutex_lock(&device->totals_lock);
  memo->peak = device->peak_large;
  tide__mutex_unlock(&device->totals_lock);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Writing

static bool views_print(const tide__memo* memo, FILE* file) {
  bool is_good = true;
  for (size_t i = 0; i < memo->view_count && is_good; i++) {
    const tide__memo_view* const view = &memo->views[i];
    is_good = fprintf(file, "view %u\n", (unsigned)view->number) > 0;
    for (size_t k = view->part; k < view->part + view->part_count && is_good; k++) {
      const tide__memo_part* const part = &memo->parts[k];
      is_good = fprintf(file, "part %u %" PRIu64 " %" PRIu64 "\n", (unsigned)part->number, part->offset,
                        part->bytes) > 0;
    }
  }
  return is_good;
}

static bool memo_print(const tide__memo* memo, FILE* file) {
  bool is_good = fprintf(file, TITLE "peak %" PRIu64 "\n", memo->peak) > 0;
  for (size_t i = 0; i < memo->stream_count && is_good; i++) {
    const tide__memo_stream* const stream = &memo->streams[i];
    is_good = fprintf(file, "stream %u\n", (unsigned)stream->number) > 0;
    for (size_t k = stream->run; k < stream->run + stream->run_count && is_good; k++) {
      is_good = fprintf(file, "handles %" PRIu64 " %" PRIu64 "\n", memo->runs[k].count, memo->runs[k].bytes) >
                0;
    }
  }
  return is_good && views_print(memo, file) && fputs("end\n", file) >= 0;
}

// A file beside it gets the text, and then its name: a reader finds the old one or the new one.
static tide_status memo_write(const tide__memo* memo, const char* path) {
  static tide__atomic_u32 files;  // of this process, because threads may write at once
  char beside[4096];
  const unsigned number = (unsigned)atomic_fetch_add(&files, 1);
  const int length = snprintf(beside, sizeof beside, "%s.%d.%u.part", path, tide__sys_process(), number);
  TIDE_REQUIRE(length > 0 && (size_t)length < sizeof beside, TIDE_ERR_ARGUMENT,
               "device_memo_save: the path is too long");
  FILE* const file = fopen(beside, "we");
  bool is_good = file != NULL && memo_print(memo, file);
  if (file != NULL) is_good = (fclose(file) == 0) && is_good;
  is_good = is_good && rename(beside, path) == 0;
  if (is_good) return TIDE_OK;
  const int error = errno;
  if (file != NULL) (void)remove(beside);
  return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "device_memo_save: %s could not be written", path);
}

static tide_status memo_new(tide_device_cache* device, const char* call, tide__memo** out) {
  *out = tide__heap_alloc(device->heap, 1, sizeof **out);
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_NO_MEMORY, "%s: no memory for a memo", call);
  return TIDE_OK;
}

static tide_status call_check(tide_device_cache* device, const char* path, const char* call) {
  TIDE_REQUIRE(device != NULL && path != NULL, TIDE_ERR_ARGUMENT, "%s: no device or path", call);
  TIDE__REQUIRE_OWN(device, call);
  TIDE_REQUIRE(tide__load_relaxed(&device->policy_now) != device->plain_policy, TIDE_ERR_UNSUPPORTED,
               "%s: only the policy tide has memos", call);
  return TIDE_OK;
}

tide_status tide_device_memo_save(tide_device_cache* device, const char* path) {
  tide__memo* memo = NULL;
  TIDE_TRY(call_check(device, path, "device_memo_save"));
  TIDE_TRY(memo_new(device, "device_memo_save", &memo));
  (void)tide__gate_enter(device);
  tide_status status = memo_take(device, memo);
  tide__gate_leave(device);
  if (status == TIDE_OK) status = memo_write(memo, path);
  tide__memo_free(device, memo);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Reading

// Text that is read from the front.
typedef struct cursor {
  const char* at;
  const char* end;
} cursor;

static bool cursor_skip(cursor* c, const char* text) {
  const size_t length = strlen(text);
  if ((size_t)(c->end - c->at) < length || memcmp(c->at, text, length) != 0) return false;
  c->at += length;
  return true;
}

// A number up to `most`, and the character behind it.
static bool cursor_number(cursor* c, uint64_t least, uint64_t most, char behind, uint64_t* out) {
  uint64_t number = 0;
  int digits = 0;
  for (; c->at < c->end && *c->at >= '0' && *c->at <= '9' && digits < DIGITS_MOST; digits++)
    number = number * 10 + (uint64_t)(*c->at++ - '0');
  *out = number;
  return digits > 0 && number >= least && number <= most && c->at < c->end && *c->at++ == behind;
}

static bool runs_read(tide_device_cache* device, cursor* c, tide__memo* memo, tide_status* status) {
  while (cursor_skip(c, "handles ")) {
    uint64_t count = 0;
    uint64_t bytes = 0;
    if (!cursor_number(c, 1, COUNT_MOST, ' ', &count)) return false;
    if (!cursor_number(c, HANDLE_LEAST, HANDLE_MOST, '\n', &bytes) || bytes % HANDLE_LEAST != 0) return false;
    const uint64_t before = memo->streams[memo->stream_count - 1].bytes;
    if (before > UINT64_MAX / 4) return false;  // what is added is at most 2^60
    if (!run_add(device, memo, count, bytes)) {
      *status = TIDE_ERR_NO_MEMORY;
      return false;
    }
  }
  return true;
}

static bool streams_read(tide_device_cache* device, cursor* c, tide__memo* memo, tide_status* status) {
  uint64_t least = 0;
  while (cursor_skip(c, "stream ")) {
    uint64_t number = 0;
    if (!cursor_number(c, least, STREAMS_MOST - 1, '\n', &number)) return false;
    least = number + 1;
    if (!stream_add(device, memo, (uint32_t)number)) {
      *status = TIDE_ERR_NO_MEMORY;
      return false;
    }
    if (!runs_read(device, c, memo, status)) return false;
  }
  return true;
}

static bool parts_read(tide_device_cache* device, cursor* c, tide__memo* memo, tide_status* status) {
  while (cursor_skip(c, "part ")) {
    uint64_t number = 0;
    tide__memo_part part = { 0, 0, 0 };
    if (!cursor_number(c, 0, STREAMS_MOST - 1, ' ', &number)) return false;
    if (!cursor_number(c, 0, UINT64_MAX, ' ', &part.offset) || part.offset % HANDLE_LEAST != 0) return false;
    if (!cursor_number(c, 1, UINT64_MAX, '\n', &part.bytes) || part.bytes % HANDLE_LEAST != 0) return false;
    part.number = (uint32_t)number;
    if (memo->part_count >= PARTS_MOST) return false;
    if (!part_add(device, memo, &part)) {
      *status = TIDE_ERR_NO_MEMORY;
      return false;
    }
  }
  return memo->views[memo->view_count - 1].part_count > 0;
}

static bool views_read(tide_device_cache* device, cursor* c, tide__memo* memo, tide_status* status) {
  while (cursor_skip(c, "view ")) {
    uint64_t number = 0;
    if (!cursor_number(c, 0, STREAMS_MOST - 1, '\n', &number)) return false;
    if (!view_add(device, memo, (uint32_t)number)) {
      *status = TIDE_ERR_NO_MEMORY;
      return false;
    }
    if (!parts_read(device, c, memo, status)) return false;
  }
  return true;
}

static tide_status memo_parse(tide_device_cache* device, cursor c, const char* path, tide__memo* memo) {
  tide_status status = TIDE_ERR_FORMAT;
  const bool is_old = cursor_skip(&c, TITLE_BEFORE);
  const bool is_good = (is_old || cursor_skip(&c, TITLE)) && cursor_skip(&c, "peak ") &&
                       cursor_number(&c, 0, UINT64_MAX, '\n', &memo->peak) &&
                       streams_read(device, &c, memo, &status) &&
                       (is_old || views_read(device, &c, memo, &status)) && cursor_skip(&c, "end\n") &&
                       c.at == c.end;
  if (is_good) return TIDE_OK;
  if (status == TIDE_ERR_NO_MEMORY) return TIDE_FAIL(status, "device_memo_load: no memory for a memo");
  return TIDE_FAIL(status, "device_memo_load: %s is not a memo of this version", path);
}

static tide_status text_read(const char* path, char* text, size_t* out_length) {
  FILE* const file = fopen(path, "re");
  if (file == NULL)
    return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, errno, "device_memo_load: %s could not be read", path);
  *out_length = fread(text, 1, FILE_MOST, file);
  const bool is_read = ferror(file) == 0;
  (void)fclose(file);
  TIDE_REQUIRE(is_read, TIDE_ERR_STATE, "device_memo_load: %s could not be read", path);
  TIDE_REQUIRE(*out_length < FILE_MOST, TIDE_ERR_FORMAT, "device_memo_load: %s is too large for a memo",
               path);
  return TIDE_OK;
}

static tide_status memo_read(tide_device_cache* device, const char* path, tide__memo* memo) {
  size_t length = 0;
  char* const text = tide__heap_alloc(device->heap, FILE_MOST, 1);
  TIDE_REQUIRE(text != NULL, TIDE_ERR_NO_MEMORY, "device_memo_load: no memory for a memo");
  tide_status status = text_read(path, text, &length);
  if (status == TIDE_OK) status = memo_parse(device, (cursor){ text, text + length }, path, memo);
  tide__heap_release(device->heap, text, FILE_MOST, 1);
  return status;
}

// What a run may have above its peak, in slacks: that of growth, that of streams that do not wait, and what
// views make. With a peak below what it lists, a memo would make more.
#define SLACKS_MOST 3.0

static void memo_cut(tide_device_cache* device, tide__memo* memo) {
  const double slack = SLACKS_MOST * tide__device_options(device)->tide_slack;
  const double most = (double)memo->peak * (1 + slack);
  uint64_t left = most < (double)device->total_bytes ? (uint64_t)most : device->total_bytes;
  for (size_t i = 0; i < memo->stream_count; i++) {
    memo->streams[i].bytes = tide__min(memo->streams[i].bytes, left);
    left -= memo->streams[i].bytes;
  }
}

static bool part_is_left(const tide__memo* memo, const tide__memo_part* part) {
  for (size_t i = 0; i < memo->stream_count; i++) {
    if (memo->streams[i].number == part->number) return part->offset + part->bytes <= memo->streams[i].bytes;
  }
  return false;
}

// Leaves out views of memory that the memo does not make.
static void views_cut(tide__memo* memo) {
  size_t kept = 0;
  for (size_t i = 0; i < memo->view_count; i++) {
    const tide__memo_view view = memo->views[i];
    bool is_left = true;
    for (size_t k = view.part; k < view.part + view.part_count; k++)
      is_left &= part_is_left(memo, &memo->parts[k]);
    if (is_left) memo->views[kept++] = view;
  }
  memo->view_count = kept;
}

// What a stream has already.
static uint64_t lane_bytes(const tide__lane* lane) {
  const tide__handle* handle = NULL;
  uint64_t bytes = 0;
  if (lane == NULL) return 0;
  handle_walk walk = walk_begin(lane);
  while ((handle = walk_next(&walk)) != NULL) bytes += handle->bytes;
  return bytes;
}

tide_status tide_device_memo_load(tide_device_cache* device, const char* path) {
  tide__memo* memo = NULL;
  TIDE_TRY(call_check(device, path, "device_memo_load"));
  TIDE_TRY(memo_new(device, "device_memo_load", &memo));
  const tide_status status = memo_read(device, path, memo);
  if (status != TIDE_OK) {
    tide__memo_free(device, memo);
    return status;
  }
  memo_cut(device, memo);
  views_cut(memo);
  tide__call_context context = { 0 };
  if (tide__is_recording(device)) context = tide__context_now(device, TIDE_HISTORY_NEVER);
  (void)tide__gate_enter(device);
  for (size_t i = 0; i < memo->stream_count; i++)
    memo->streams[i].made = lane_bytes(tide__memo_lane(device, memo->streams[i].number));
  tide__ahead_set_memo(device, memo, &context);
  tide__gate_leave(device);
  tide__history_tell(&device->history);
  return TIDE_OK;
}
