// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The timeline of tidemark report: a small drawing, only for a terminal that can show it.
#include <stdlib.h>
#include <string.h>

#include "braille.h"
#include "display.h"
#include "report.h"

#define REPORT_ROWS 6      // of the curves
#define REPORT_COLUMNS 40  // at least

static bool terminal_shows_braille(void) {
  const char* const terminal = getenv("TERM");
  return tool_terminal_columns(stdout) >= REPORT_COLUMNS && tool_terminal_has_utf8() && terminal != NULL &&
         strcmp(terminal, "dumb") != 0;
}

int tool_timeline_parse(const tool_call* call, bool* out) {
  const char* const when = tool_option_value(call, "timeline");
  *out = false;
  if (when == NULL || strcmp(when, "auto") == 0) *out = terminal_shows_braille();
  else if (strcmp(when, "always") == 0) *out = true;
  else if (strcmp(when, "never") != 0)
    return tool_fail("--timeline must be auto, always or never, not '%s'", when);
  return TOOL_DONE;
}

static void timeline_draw(tool_emit* emit, const tool_diagnosis* r, size_t columns, const tool_axis* axis,
                          const tool_timeline* timeline) {
  tool_marks marks;
  tool_recording recording = r->recording;
  recording.trace = r->trace;
  recording.device = r->device;
  tool_marks_find(&marks, &recording, &r->limit, axis);
  const tool_braille drawing = { .columns = columns,
                                 .rows = REPORT_ROWS,
                                 .has_color = tool_emit_has_color(emit),
                                 .knows_reserved = r->knows_reserved,
                                 .marks = &marks };
  char* const text = tool_braille_draw(&drawing, timeline, axis);
  tool_emit_drawing(emit, text);
  free(text);
  tool_marks_fini(&marks);
}

int tool_diagnosis_emit_timeline(tool_emit* emit, const tool_diagnosis* r) {
  tool_axis axis;
  tool_timeline timeline;
  size_t columns = tool_text_columns(stdout);
  if (!r->has_timeline || r->call->is_json || r->entry_count == 0) return TOOL_DONE;
  if (columns < REPORT_COLUMNS) columns = REPORT_COLUMNS;
  if (!tool_axis_init(&axis, TOOL_AXIS_TIME, r->trace, r->device, NULL))
    (void)tool_axis_init(&axis, TOOL_AXIS_ENTRY, r->trace, r->device, NULL);
  const tide_status status = tool_timeline_init(&timeline, r->ledger, &axis, tool_braille_buckets(columns));
  if (status == TIDE_OK) {
    timeline_draw(emit, r, columns, &axis, &timeline);
    tool_timeline_fini(&timeline);
  }
  tool_axis_fini(&axis);
  return status == TIDE_OK ? TOOL_DONE : tool_fail("%s", tool_error());
}
