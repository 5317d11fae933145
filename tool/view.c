// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark view: one HTML file that shows the memory of a run. Files are read one after another, so only one
// is in memory at a time; their parts are kept compressed until the page is written.
#include "view.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES ((uint64_t)48 << 20)  // of a page, unless --page-size says otherwise
#define PORT_LEAST 1024u                 // those below are the system's
#define PATIENCE_LEAST_S 0.1
#define PATIENCE_MOST_S 20.0

// ---------------------------------------------------------------------------------------------------
// One file

// The sentences of a paragraph, as a list.
static void sentences_emit(tool_emit* emit, const char* text) {
  while (*text != '\0') {
    const char* const end = strstr(text, ". ");
    const size_t bytes = end != NULL ? (size_t)(end - text) + 1 : strlen(text);
    tool_emit_list_text(emit, "%.*s", (int)bytes, text);
    text += bytes;
    text += strspn(text, " ");
  }
}

static void advice_emit(tool_emit* emit, const tool_diagnosis* r, const char* text) {
  static const tool_column columns[] = { { "text", NULL }, { "line", NULL } };
  char line[TOOL_ADVICE_LINE];
  tool_emit_table(emit, "advice", columns, 2);
  if (*text != '\0') {
    tool_emit_row(emit);
    tool_emit_text(emit, NULL, NULL, text);
    tool_emit_text(emit, NULL, NULL, tool_advice_line(&r->advice, line));
  }
  tool_emit_table_end(emit);
}

// The facts of a file: its name, and what the report says about its device.
static char* file_facts(const tool_call* call, tool_view_device* device, size_t place) {
  tool_words finding;
  tool_words advice;
  char leaks[TOOL_STEPS_WARNING];
  tool_emit* const emit = tool_emit_begin(call);
  tool_diagnosis_conclude(&device->diagnosis, &finding, &advice);
  tool_emit_text(emit, "name", NULL, call->operands[0]);
  tool_emit_uint(emit, "described", NULL, place);
  tool_emit_open(emit, "report", NULL);
  tool_emit_open_list(emit, "finding");
  sentences_emit(emit, finding.text);
  if (tool_steps_warning(&device->steps, leaks) != NULL) sentences_emit(emit, leaks);
  tool_emit_close_list(emit);
  advice_emit(emit, &device->diagnosis, advice.text);
  tool_emit_close(emit);
  return tool_emit_take(emit);
}

static int device_look(const tool_call* call, tide_trace* trace, size_t number, tool_view_stacks* stacks,
                       tool_view_device* device) {
  tool_diagnosis* const r = &device->diagnosis;
  r->call = call;
  r->trace = trace;
  r->device = number;
  r->top = TOOL_DIAGNOSIS_TOP;
  int status = tool_diagnosis_find(r);
  if (status == TOOL_DONE)
    status = tool_steps_init(&device->steps, call, trace, number, r->ledger, &r->sites);
  if (status == TOOL_DONE)
    status = tool_view_memory_gather(&device->memory, trace, number, r->ledger, stacks);
  if (status == TOOL_DONE) tool_view_whatif_run(&device->whatif, r, device->memory.overview.count);
  return status;
}

static void device_fini(tool_view_device* device) {
  tool_view_whatif_fini(&device->whatif);
  tool_view_memory_fini(&device->memory);
  tool_steps_fini(&device->steps);
  tool_diagnosis_fini(&device->diagnosis);
  free(device);
}

// `place` is that of the device among those of the file. The facts of the file come from the device that the
// report describes, but precede all devices.
static int device_add(tool_view_page* page, const tool_call* call, tide_trace* trace, size_t number,
                      size_t place, tool_view_stacks* stacks) {
  tool_view_device* const device = tool_alloc(1, sizeof *device);
  device->number = page->device_count;
  const int status = device_look(call, trace, number, stacks, device);
  if (status == TOOL_DONE) {
    if (number == tool_device_default(trace)) {
      tool_view_page_set_file(page, file_facts(call, device, place));
    }
    tool_view_parts_of(&page->parts, device);
    tool_view_page_add_device(page, tool_view_facts_of(call, device));
    page->entry_count += device->memory.entry_count;
    if (page->is_served) tool_view_details_keep(page, &device->memory);
  }
  device_fini(device);
  return status;
}

static void stacks_add(tool_view_page* page, const tide_trace* trace, tool_view_stacks* stacks) {
  tool_sites sites;
  tool_view_bytes bytes;
  char name[TOOL_VIEW_NAME];
  tool_sites_init(&sites, trace);
  tool_view_stacks_write(stacks, &sites, &bytes);
  tool_sites_fini(&sites);
  (void)tool_view_name('f', page->file_count - 1, "stacks", name);
  tool_view_parts_add(&page->parts, name, TOOL_VIEW_STACKS, &bytes)->device = SIZE_MAX;
}

static int trace_add(tool_view_page* page, const tool_call* call, tide_trace* trace) {
  const size_t count = tool_device_count(trace);
  size_t place = 0;
  int status = TOOL_DONE;
  tool_view_stacks stacks;
  tool_view_stacks_init(&stacks, trace);
  tool_view_page_add_file(page);
  for (size_t i = 0; i < count && status == TOOL_DONE; i++) {
    if (tool_device_has_data(trace, i)) status = device_add(page, call, trace, i, place++, &stacks);
  }
  if (status == TOOL_DONE && place == 0)
    status = tool_fail("%s: nothing to show: it has neither entries nor segments", call->operands[0]);
  if (status == TOOL_DONE) stacks_add(page, trace, &stacks);
  tool_view_stacks_fini(&stacks);
  return status;
}

// A file for itself, as JSON, so that the code behind --json writes the facts.
static int file_add(tool_view_page* page, const tool_call* call, int operand) {
  tide_trace* trace = NULL;
  tool_call one = *call;
  one.operands = call->operands + operand;
  one.operand_count = 1;
  one.is_json = true;
  int status = tool_trace_read(one.operands[0], &trace);
  if (status == TOOL_DONE) status = trace_add(page, &one, trace);
  tide_trace_free(trace);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// The answer

static void answer_emit_text(tool_emit* emit, const tool_view_page* page, const char* path, uint64_t bytes) {
  char size[TOOL_SIZE_TEXT];
  const uint64_t left_out = tool_view_page_left_out(page);
  tool_emit_words(emit, "%s: %s, with %llu entries of %zu recording%s.", path, tool_size_text(bytes, size),
                  (unsigned long long)page->entry_count, page->file_count, page->file_count == 1 ? "" : "s");
  if (left_out > 0)
    tool_emit_words(emit,
                    "%llu blocks that lived for fewer than %llu entries are left out, so that the page stays "
                    "small; its curves are exact. --page-size allows a larger page, and --serve shows all "
                    "blocks.",
                    (unsigned long long)left_out, 1ULL << page->level);
}

static int answer(const tool_call* call, const tool_view_page* page, const char* path, uint64_t bytes) {
  if (strcmp(path, "-") == 0) return TOOL_DONE;
  const uint64_t left_out = tool_view_page_left_out(page);
  tool_emit* const emit = tool_emit_begin(call);
  tool_emit_text(emit, "page", NULL, path);
  tool_emit_uint(emit, "bytes", NULL, bytes);
  tool_emit_uint(emit, "files", NULL, page->file_count);
  tool_emit_uint(emit, "devices", NULL, page->device_count);
  tool_emit_uint(emit, "entries", NULL, page->entry_count);
  tool_emit_uint(emit, "left_out_blocks", NULL, left_out);
  tool_emit_uint_if(emit, left_out > 0, "left_out_below_entries", NULL, 1ULL << page->level);
  answer_emit_text(emit, page, path, bytes);
  return tool_emit_end(emit);
}

// ---------------------------------------------------------------------------------------------------
// The verb

static int path_check(const tool_call* call, const char* path, bool is_served) {
  if (path != NULL && is_served)
    return tool_fail("-o writes a page and --serve shows one: choose one of them");
  if (is_served) return TOOL_DONE;
  if (tool_option_value(call, "port") != NULL) return tool_fail("--port is for --serve");
  if (tool_option_value(call, "patience") != NULL) return tool_fail("--patience is for --serve");
  if (path == NULL)
    return tool_fail("where to? -o names the page, such as -o page.html; --serve shows it at once");
  if (*path == '\0') return tool_fail("-o needs the name of a file");
  for (int i = 0; i < call->operand_count; i++) {
    if (tool_file_is_input(path, call->operands[i]))
      return tool_fail("%s: the page would replace a recording", path);
  }
  return TOOL_DONE;
}

static int size_parse(const tool_call* call, uint64_t* out) {
  const char* const text = tool_option_value(call, "page-size");
  *out = PAGE_BYTES;
  if (text == NULL || tool_size_parse(text, out)) return TOOL_DONE;
  return tool_fail("--page-size must be a size such as 20MiB, not '%s'", text);
}

// The port is taken before files are read, so that a port in use is known at once.
static int serve_open(const tool_call* call, tool_serve** out) {
  const char* const text = tool_option_value(call, "port");
  const char* const patience = tool_option_value(call, "patience");
  uint64_t port = 0;
  double patience_s = TOOL_SERVE_PATIENCE_S;
  if (text != NULL && (!tool_number_parse(text, UINT16_MAX, &port) || port < PORT_LEAST))
    return tool_fail("--port must be a number from %u to 65535, not '%s'", PORT_LEAST, text);
  if (patience != NULL && !tool_seconds_parse(patience, PATIENCE_LEAST_S, PATIENCE_MOST_S, &patience_s))
    return tool_fail("--patience must be between 0.1 and 20 seconds, not '%s'", patience);
  return tool_serve_open((uint16_t)port, patience_s, out);
}

static int page_fit(tool_view_page* page, uint64_t most) {
  char sizes[2][TOOL_SIZE_TEXT];
  const uint64_t bytes = tool_view_page_fit(page, most);
  if (bytes <= most) return TOOL_DONE;
  return tool_fail("even without blocks the page needs %s, but --page-size allows %s",
                   tool_size_text(bytes, sizes[0]), tool_size_text(most, sizes[1]));
}

static int page_write(const tool_call* call, const tool_view_page* page, const char* path) {
  uint64_t bytes = 0;
  const int status = tool_file_write(path, tool_view_page_write, page, &bytes);
  return status == TOOL_DONE ? answer(call, page, path, bytes) : status;
}

static int page_make(const tool_call* call, tool_view_page* page, tool_serve* serve) {
  uint64_t most = 0;
  int status = size_parse(call, &most);
  for (int i = 0; i < call->operand_count && status == TOOL_DONE; i++) status = file_add(page, call, i);
  if (status == TOOL_DONE) status = page_fit(page, most);
  if (status == TOOL_DONE && serve != NULL) return tool_view_serve(call, page, serve);
  tool_serve_close(serve);
  return status == TOOL_DONE ? page_write(call, page, tool_option_value(call, "output")) : status;
}

static int view_run(const tool_call* call) {
  const bool is_served = tool_option_value(call, "serve") != NULL;
  tool_view_page page = { .is_served = is_served };
  tool_serve* serve = NULL;
  int status = path_check(call, tool_option_value(call, "output"), is_served);
  if (status == TOOL_DONE && is_served) status = serve_open(call, &serve);
  if (status == TOOL_DONE) status = page_make(call, &page, serve);
  tool_view_page_fini(&page);
  return status;
}

static const tool_option view_options[] = {
  { "output", 'o', "PAGE", "the HTML file to write; '-' for standard output" },
  { "page-size", 0, "SIZE",
    "the largest size of the page; blocks with short lives are left out if they do not fit (default: "
    "48MiB)" },
  { "serve", 0, NULL,
    "show the page at an address of this computer instead, with every block of a recording that does not fit "
    "a page, until Ctrl-C" },
  { "port", 0, "PORT", "the port of the address (default: any free one)" },
  { "patience", 0, "SECONDS", NULL },  // for tests, which cannot wait long
  TOOL_STEP_OPTION,
  { NULL, 0, NULL, NULL },
};

const tool_verb tool_view = {
  .name = "view",
  .summary = "write a page that shows the memory of a run in a browser",
  .operands = "FILE...",
  .text =
      "The page is one HTML file. It needs no network and no other file, and contains the recording in a "
      "compact form: every block and segment from beginning to end, the stacks, the findings of "
      "`tidemark report`, and reserved memory over time under up to five settings, which are replayed when "
      "the page is made. Several recordings, such as those of the ranks of a run, become one page.\n\n"
      "If a recording does not fit a page, the blocks with the shortest lives are left out. With --serve the "
      "page asks for those of the window that it shows. Only programs of this computer that know the printed "
      "address get an answer.\n\n"
      "A page for a colleague contains the names of files and functions of the program, as the recording "
      "does.",
  .options = view_options,
  .operands_min = 1,
  .operands_max = TOOL_OPERANDS_ANY,
  .run = view_run,
};
