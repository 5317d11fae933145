// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The `tidemark` command: what its verbs share. One file a verb; a verb fills a report, which is printed as
// tables or as one JSON object.
#ifndef TIDEMARK_TOOL_TOOL_H
#define TIDEMARK_TOOL_TOOL_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tidemark/problem.h"
#include "tidemark/trace.h"

// Exit statuses.
#define TOOL_DONE 0
#define TOOL_NO 1     // the answer is no: a mismatch, it does not fit, it differs
#define TOOL_USAGE 2  // a wrong command line, or a file that cannot be read
#define TOOL_TIME 3   // ran out of time

// ---------------------------------------------------------------------------------------------------
// Command lines (args.c)

typedef struct tool_call tool_call;

// An option of a verb. `value` is the word for its argument in the help ("SIZE"), NULL: it has none.
typedef struct tool_option {
  const char* name;  // without "--"
  char letter;       // of the short form, 0: none
  const char* value;
  const char* text;
} tool_option;

// A verb: everything its help, its line in the list, the man page and the shell completion need.
typedef struct tool_verb {
  const char* name;
  const char* summary;         // one line
  const char* operands;        // as the help names them: "IN OUT"; "" for none
  const char* text;            // further paragraphs of the help; may be NULL
  const tool_option* options;  // up to one whose name is NULL; --help, --json and --color are everybody's
  int operands_min;
  int operands_max;
  int (*run)(const tool_call* call);
} tool_verb;

#define TOOL_OPERANDS 4
#define TOOL_OPTIONS 16

// When to colour: as --color says.
typedef enum tool_color { TOOL_COLOR_AUTO, TOOL_COLOR_ALWAYS, TOOL_COLOR_NEVER } tool_color;

// A command line, taken apart. Everything is borrowed from argv.
struct tool_call {
  const tool_verb* verb;
  const char* operands[TOOL_OPERANDS];
  int operand_count;
  // By the place of the option in verb->options; NULL: not given; "" if it has no argument.
  const char* values[TOOL_OPTIONS];
  bool is_json;
  tool_color color;
};

// The value of an option by its name, NULL: not given.
const char* tool_option_value(const tool_call* call, const char* name);

// Says what is wrong on standard error, "tidemark VERB: ...", and returns TOOL_USAGE. Texts from files may
// stand in it: they are made fit for a terminal.
__attribute__((format(printf, 1, 2))) int tool_fail(const char* format, ...);

// What the library says went wrong in its last call, without the name of the call: users made none.
const char* tool_error(void);

// Says that standard output cannot be written, and why (errno); returns TOOL_USAGE.
int tool_output_failed(void);

// Takes the command line of a verb apart, argv[0] being its name, and runs it. A wrong one, and --help, are
// dealt with. Returns the exit status.
int tool_verb_run(const tool_verb* verb, int argc, char** argv);
// The options that every verb has, up to one whose name is NULL.
extern const tool_option tool_shared_options[];

// Memory of `count` times `bytes`, zeroed; and memory made longer. They end the program when there is none:
// a verb has nothing better to do then. Freed by free().
void* tool_alloc(size_t count, size_t bytes);
void* tool_grow(void* memory, size_t count, size_t bytes);
// Says that there is no memory, and ends the program.
_Noreturn void tool_out_of_memory(void);

// Says on standard error what a reader of the answer should know, in the same way.
__attribute__((format(printf, 1, 2))) void tool_warn(const char* format, ...);

// ---------------------------------------------------------------------------------------------------
// Sizes (size.c): "512", "24GiB", "1.5G"; K M G T and KiB ... are powers of 1024, KB ... of 1000

bool tool_size_parse(const char* text, uint64_t* out);
// Memory of a device is never below 1 MiB, so a smaller number without a unit was meant to have one. Then it
// asks which, on standard error, and returns TOOL_USAGE; `bytes` is what the text says. Else it returns 0.
int tool_size_ask(const char* option, const char* text, uint64_t bytes);
// The largest unit of which there is at least one; and a size in a unit, two decimals unless it is bytes:
// "640 B", "26.53 GiB". The buffer is the caller's; they return it.
typedef enum tool_unit { TOOL_UNIT_B, TOOL_UNIT_KIB, TOOL_UNIT_MIB, TOOL_UNIT_GIB, TOOL_UNIT_TIB } tool_unit;
#define TOOL_SIZE_TEXT 32
tool_unit tool_size_unit(uint64_t largest);
const char* tool_size_in(uint64_t bytes, tool_unit unit, char out[TOOL_SIZE_TEXT]);
// In its own unit.
const char* tool_size_text(uint64_t bytes, char out[TOOL_SIZE_TEXT]);
// Two sizes that are compared: in one unit, so small that they look different if they are.
void tool_size_pair(uint64_t a, uint64_t b, char out_a[TOOL_SIZE_TEXT], char out_b[TOOL_SIZE_TEXT]);
// A whole number in decimal digits that is at most `most`.
bool tool_number_parse(const char* text, uint64_t most, uint64_t* out);
// What part of a whole it is; 0 of nothing.
static inline double tool_share(uint64_t part, uint64_t whole) {
  return whole != 0 ? (double)part / (double)whole : 0;
}

// What part of the reserved memory was live at the peaks. Not a number, which is shown as such, where more
// was live than there was: the recording contradicts itself, or waits for work that had ended in a replay.
static inline double tool_utilisation(uint64_t live, uint64_t reserved) {
  return live <= reserved ? tool_share(live, reserved) : (double)NAN;
}

// ---------------------------------------------------------------------------------------------------
// Files (open.c, save.c, same.c)

// Reads a whole file, or standard input for "-": decompresses by magic (xz, gzip, zstd), finds the format,
// shows progress on standard error when it takes over a second. On failure says so and returns TOOL_USAGE,
// else 0.
int tool_trace_read(const char* path, tide_trace** out);
// The same without a word: the error stays in the thread's record.
tide_status tool_trace_load(const char* path, tide_trace** out);
// The same, but a planning problem in MiniMalloc's CSV becomes a problem, and there is no trace. Of any other
// file there is a trace, and the problem is NULL.
int tool_problem_read(const char* path, tide_problem** out_problem, tide_trace** out_trace);
// To how many bytes a compressed file may be decoded, in place of a limit by its size; 0: that limit.
void tool_unpacked_allow(uint64_t bytes);

// Writes a file, or to standard output for "-", compressed if the name ends in .xz, .gz or .zst. `write` is
// called once, with what it is to write and where it goes. A file is there whole or as it was before.
// `out_bytes` (may be NULL): how many bytes were written.
typedef tide_status tool_file_writer(const void* what, const tide_sink* sink);
int tool_file_write(const char* path, tool_file_writer* write, const void* what, uint64_t* out_bytes);
// The same for a trace.
int tool_trace_write(const tide_trace* trace, const char* path, tide_format format);
int tool_trace_write_counted(const tide_trace* trace, const char* path, tide_format format,
                             uint64_t* out_bytes);

// Do two names mean one ordinary file, which is there or is yet to be made (same.c)? And does an output
// replace an input, which is standard input if it is "-"?
bool tool_file_is_same(const char* a, const char* b);
bool tool_file_is_input(const char* path, const char* input);

// ---------------------------------------------------------------------------------------------------
// Progress (progress.c): a bar on standard error, only on a terminal, only after a second

typedef struct tool_progress tool_progress;
tool_progress* tool_progress_begin(const char* what);
void tool_progress_show(tool_progress* progress, double share);  // 0 to 1, below 0: not known; cheap
void tool_progress_rename(tool_progress* progress, const char* what);
void tool_progress_end(tool_progress* progress);
void tool_progress_clear(void);  // takes a bar off the screen before something else is printed there

// ---------------------------------------------------------------------------------------------------
// What a verb has to say (emit.c): one tree of facts, printed as JSON or for people

typedef struct tool_emit tool_emit;

// Begins the answer of a verb; --json of the call decides its form. Colour only on a terminal, or as --color
// says; JSON is one object.
tool_emit* tool_emit_begin(const tool_call* call);
// Ends it and flushes standard output; returns 0, or TOOL_USAGE when it could not be written.
int tool_emit_end(tool_emit* emit);
// Ends it without printing anything: nothing is printed before the end, so that a verb that fails on its way
// leaves no half an answer.
void tool_emit_drop(tool_emit* emit);

// A heading, for people only.
void tool_emit_title(tool_emit* emit, const char* format, ...) __attribute__((format(printf, 2, 3)));
// A paragraph, wrapped to the width of the terminal (at most 100), for people only.
void tool_emit_words(tool_emit* emit, const char* format, ...) __attribute__((format(printf, 2, 3)));

// One fact: in JSON `"key": value`; for people a line "label   value" with the values below each other. A
// label of NULL: only in JSON. A key of NULL: only for people.
void tool_emit_uint(tool_emit* emit, const char* key, const char* label, uint64_t value);
// Bytes; for people in the unit of the largest in the same column, or among the facts below each other.
void tool_emit_bytes(tool_emit* emit, const char* key, const char* label, uint64_t bytes);
// A change from `a` to `b` bytes, with its sign.
void tool_emit_change(tool_emit* emit, const char* key, const char* label, uint64_t a, uint64_t b);
// A number that is not finite is null, and "-".
void tool_emit_real(tool_emit* emit, const char* key, const char* label, double value, int decimals);
void tool_emit_bool(tool_emit* emit, const char* key, const char* label, bool value);  // people: yes, no
// Text of any bytes: not UTF-8 is repaired, and what would steer a terminal is spelled out (display.h). NULL
// is null, and "-".
void tool_emit_text(tool_emit* emit, const char* key, const char* label, const char* text);
void tool_emit_format(tool_emit* emit, const char* key, const char* label, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
// A list of numbers, in JSON only.
void tool_emit_list(tool_emit* emit, const char* key, const double* values, size_t count, int decimals);

// An object in the object, and its end. For people a heading, if there is a label.
void tool_emit_open(tool_emit* emit, const char* key, const char* label);
void tool_emit_close(tool_emit* emit);

// A table: in JSON a list of objects under `key`; for people columns with a heading. The columns are named
// first, then each row gets one value for each column, in their order, by the calls above with NULL for key
// and label. Numbers stand to the right, texts to the left; the last text column is cut at the terminal's
// width. A table whose key is NULL is for people only. The columns are borrowed until the end of the table.
typedef struct tool_column {
  const char* key;    // NULL: only for people
  const char* label;  // NULL: only in JSON
} tool_column;
void tool_emit_table(tool_emit* emit, const char* key, const tool_column* columns, size_t count);
void tool_emit_row(tool_emit* emit);        // begins a row
void tool_emit_table_end(tool_emit* emit);  // prints what people see

// ---------------------------------------------------------------------------------------------------
// Shell completion (completion.c): prints the script for "bash" or "zsh"; returns the exit status

int tool_completion_print(const char* shell);

// ---------------------------------------------------------------------------------------------------
// The verbs: each file has one table entry; main.c lists them

// All verbs there are, up to NULL.
extern const tool_verb* const tool_verbs[];

extern const tool_verb tool_info;
extern const tool_verb tool_report;
extern const tool_verb tool_replay;
extern const tool_verb tool_whatif;
extern const tool_verb tool_plan;
extern const tool_verb tool_verify;
extern const tool_verb tool_convert;
extern const tool_verb tool_diff;
extern const tool_verb tool_machines;

#endif
