// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark convert: reads a trace in one format and writes it in another. The output format is given by --to
// or by the ending of the name, without the ending of a compression. The longest ending counts: x.trace.json
// is a timeline, x.json a snapshot.
#include <string.h>

#include "codec.h"
#include "tool.h"

static const tool_option options[] = {
  { "to", 't', "FORMAT",
    "the format to write: pickle, json, tide, rmm, minimalloc, chrome, folded or pprof (default: from the "
    "name of OUT)" },
  { NULL, 0, NULL, NULL },
};

// Do the first `bytes` of the name end in a dot and this ending, after at least one letter?
static bool name_has_ending(const char* name, size_t bytes, const char* ending) {
  const size_t length = strlen(ending);
  return bytes > length + 1 && name[bytes - length - 1] == '.' && name[bytes - length - 2] != '/' &&
         memcmp(name + bytes - length, ending, length) == 0;
}

// The format by the ending of a file name, or -1.
static int format_by_name(const char* name) {
  size_t stem = 0;
  size_t longest = 0;
  int found = -1;
  (void)tool_codec_by_name(name, &stem);
  for (int format = 0; format < TIDE_FORMAT_COUNT; format++) {
    const char* ending = tide_format_describe((uint32_t)format).ending;
    if (strlen(ending) <= longest || !name_has_ending(name, stem, ending)) continue;
    longest = strlen(ending);
    found = format;
  }
  return found;
}

static bool format_choose(const tool_call* call, tide_format* out) {
  const char* name = tool_option_value(call, "to");
  const char* path = call->operands[1];
  const int format = name != NULL ? tide_format_from_name(name) : format_by_name(path);
  if (format >= 0) *out = (tide_format)format;
  else if (name != NULL) (void)tool_fail("unknown format '%s'; see tidemark convert --help", name);
  else (void)tool_fail("%s: cannot tell the format from this name; name it with --to", path);
  return format >= 0;
}

static uint64_t entry_count(const tide_trace* trace) {
  uint64_t total = 0;
  for (size_t device = 0; device < tide_trace_device_count(trace); device++) {
    size_t count = 0;
    (void)tide_trace_entries(trace, device, &count);
    total += count;
  }
  return total;
}

static int converted_emit(const tool_call* call, const tide_trace* trace, tide_format format,
                          uint64_t bytes) {
  size_t segments = 0;
  size_t blocks = 0;
  (void)tide_trace_segments(trace, &segments);
  (void)tide_trace_blocks(trace, &blocks);
  tool_emit* const emit = tool_emit_begin(call);
  tool_emit_text(emit, "input", "input", call->operands[0]);
  tool_emit_text(emit, "output", "output", call->operands[1]);
  tool_emit_text(emit, "format", "format", tide_format_describe((uint32_t)format).name);
  tool_emit_uint(emit, "entries", "entries", entry_count(trace));
  tool_emit_uint(emit, "segments", "segments", segments);
  tool_emit_uint(emit, "blocks", "blocks", blocks);
  tool_emit_uint(emit, "bytes", "bytes written", bytes);
  tool_emit_bool(emit, "is_cut", NULL, tide_trace_get_about(trace).is_cut);
  if (tide_trace_get_about(trace).is_cut)
    tool_emit_words(emit, "The end of the input is missing or damaged; the part before it was converted.");
  return tool_emit_end(emit);
}

// A file may be converted in place only if nothing is lost.
static int place_check(const tool_call* call, const tide_trace* trace, tide_format format) {
  const char* const path = call->operands[1];
  const bool is_whole = format == TIDE_FORMAT_PICKLE || format == TIDE_FORMAT_JSON ||
                        format == TIDE_FORMAT_NATIVE;
  if (!tool_file_is_input(path, call->operands[0])) return TOOL_DONE;
  if (!is_whole)
    return tool_fail("%s: would overwrite the recording, and %s keeps only part of it; choose another name",
                     path, tide_format_describe((uint32_t)format).name);
  if (tide_trace_get_about(trace).is_cut)
    return tool_fail("%s: would overwrite a recording whose end is damaged; choose another name", path);
  return TOOL_DONE;
}

static int convert_run(const tool_call* call) {
  const char* path = call->operands[1];
  const bool is_standard = strcmp(path, "-") == 0;
  tide_format format = TIDE_FORMAT_COUNT;
  if (!format_choose(call, &format)) return TOOL_USAGE;
  if (is_standard && call->is_json)
    return tool_fail("--json and the converted recording cannot both go to standard output");
  tide_trace* trace = NULL;
  uint64_t bytes = 0;
  int status = tool_trace_read(call->operands[0], &trace);
  if (status == TOOL_DONE) status = place_check(call, trace, format);
  if (status == TOOL_DONE) status = tool_trace_write_counted(trace, path, format, &bytes);
  if (status == TOOL_DONE && !is_standard) status = converted_emit(call, trace, format, bytes);
  tide_trace_free(trace);
  return status;
}

const tool_verb tool_convert = {
  .name = "convert",
  .summary = "convert a recording to another format",
  .operands = "IN OUT",
  .text =
      "The format of IN is detected from its first bytes. OUT is compressed if its name ends in .xz, .gz or "
      ".zst; '-' is standard output. Names end in .pickle, .json, .tide, .rmm.csv, .csv (minimalloc), "
      ".trace.json (chrome), .folded or .pb (pprof). OUT may be the same file as IN only in a format that "
      "keeps everything: pickle, json or tide.",
  .options = options,
  .operands_min = 2,
  .operands_max = 2,
  .run = convert_run,
};
