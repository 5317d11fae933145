// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark view --serve: the page, and the blocks that it lacks, to a browser on this computer.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "view.h"

#define POSITION_MOST UINT32_MAX
#define UNIT_MOST ((uint64_t)1 << 53)  // numbers of the page are exact up to here

// ---------------------------------------------------------------------------------------------------
// Questions

// "blocks?device=0&from=10&to=20"
static tool_serve_verdict blocks_answer(const tool_view_page* page, const tool_serve_request* request,
                                        tool_view_bytes* out) {
  uint64_t device = 0;
  uint64_t from = 0;
  uint64_t to = 0;
  const bool is_right = tool_serve_number(request, "device", SIZE_MAX, &device) &&
                        tool_serve_number(request, "from", POSITION_MOST, &from) &&
                        tool_serve_number(request, "to", POSITION_MOST, &to) && from < to &&
                        tool_view_details_window(page, device, from, to, out);
  return is_right ? TOOL_SERVE_DONE : TOOL_SERVE_WRONG;
}

// "nearest?device=0&position=10&lane=2&low=4&high=8"
static tool_serve_verdict nearest_answer(const tool_view_page* page, const tool_serve_request* request,
                                         tool_view_bytes* out) {
  uint64_t device = 0;
  uint64_t position = 0;
  uint64_t lane = 0;
  uint64_t low = 0;
  uint64_t high = 0;
  const bool is_right = tool_serve_number(request, "device", SIZE_MAX, &device) &&
                        tool_serve_number(request, "position", POSITION_MOST, &position) &&
                        tool_serve_number(request, "lane", POSITION_MOST, &lane) &&
                        tool_serve_number(request, "low", UNIT_MOST, &low) &&
                        tool_serve_number(request, "high", UNIT_MOST, &high) && low < high &&
                        tool_view_details_nearest(page, device, position, lane, low, high, out);
  return is_right ? TOOL_SERVE_DONE : TOOL_SERVE_WRONG;
}

static tool_serve_verdict answer(const void* user, const char* question, const tool_serve_request* request,
                                 unsigned char** out, size_t* out_bytes) {
  const tool_view_page* const page = user;
  tool_view_bytes bytes = { .data = NULL };
  tool_serve_verdict verdict = TOOL_SERVE_UNKNOWN;
  if (strcmp(question, "blocks") == 0) verdict = blocks_answer(page, request, &bytes);
  else if (strcmp(question, "nearest") == 0) verdict = nearest_answer(page, request, &bytes);
  *out = bytes.data;
  *out_bytes = bytes.count;
  return verdict;
}

// ---------------------------------------------------------------------------------------------------
// The page

static tide_status bytes_write(void* user, const void* data, size_t count) {
  tool_view_bytes* const bytes = user;
  if (bytes->count + count > bytes->room) {
    bytes->room = 2 * bytes->room + count;
    bytes->data = tool_grow(bytes->data, bytes->room, 1);
  }
  memcpy(bytes->data + bytes->count, data, count);
  bytes->count += count;
  return TIDE_OK;
}

// What is printed first: the address alone on a line, for people and programs.
static int address_emit(const tool_call* call, const tool_view_page* page, const tool_serve* serve,
                        size_t bytes, uint64_t left_out) {
  char line[128];
  tool_emit* const emit = tool_emit_begin(call);
  tool_emit_text(emit, "address", NULL, tool_serve_address(serve));
  tool_emit_uint(emit, "bytes", NULL, bytes);
  tool_emit_uint(emit, "files", NULL, page->file_count);
  tool_emit_uint(emit, "devices", NULL, page->device_count);
  tool_emit_uint(emit, "entries", NULL, page->entry_count);
  tool_emit_uint(emit, "left_out_blocks", NULL, left_out);
  tool_emit_uint_if(emit, left_out > 0, "left_out_below_entries", NULL, 1ULL << page->level);
  (void)snprintf(line, sizeof line, "%s\n", tool_serve_address(serve));
  tool_emit_drawing(emit, line);
  if (!call->is_json && isatty(STDOUT_FILENO)) tool_emit_words(emit, "Open it in a browser. Ctrl-C ends it.");
  return tool_emit_end(emit);
}

int tool_view_serve(const tool_call* call, tool_view_page* page, tool_serve* serve) {
  tool_view_bytes bytes = { .data = NULL };
  const tide_sink sink = { .write = bytes_write, .user = &bytes };
  const uint64_t left_out = tool_view_page_left_out(page);
  tool_view_details_trim(page);
  (void)tool_view_page_write(page, &sink);  // cannot fail: memory does not
  tool_view_parts_fini(&page->parts);       // as the page has them
  page->parts = (tool_view_parts){ .items = NULL };
  const tool_serve_site site = {
    .page = bytes.data, .page_bytes = bytes.count, .answer = answer, .user = page
  };
  int status = tool_serve_start(serve, &site);
  if (status == TOOL_DONE) status = address_emit(call, page, serve, bytes.count, left_out);
  if (status == TOOL_DONE) tool_serve_wait(serve);
  tool_serve_close(serve);
  free(bytes.data);
  return status;
}
