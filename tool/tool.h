// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The `tidemark` command: what its verbs share. Each verb has a file of its own. A verb emits its answer,
// which is printed as text or as one JSON object.
#ifndef TIDEMARK_TOOL_TOOL_H
#define TIDEMARK_TOOL_TOOL_H

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tidemark/problem.h"
#include "tidemark/trace.h"

// Exit statuses.
#define TOOL_DONE 0
#define TOOL_NO 1     // the answer is no: runs differ, or something does not fit
#define TOOL_USAGE 2  // a wrong command line, or a file that cannot be read or written
#define TOOL_TIME 3   // out of time

// ---------------------------------------------------------------------------------------------------
// Command lines (args.c)

typedef struct tool_call tool_call;

// An option of a verb. `value` names its argument in the help ("SIZE"); NULL if it takes none. One without a
// text is hidden: only the manual has it, neither the help nor completion.
typedef struct tool_option {
  const char* name;  // without "--"
  char letter;       // of the short form; 0: none
  const char* value;
  const char* text;  // NULL: hidden
} tool_option;

// A verb, with everything that its help, the list of verbs and shell completion need.
typedef struct tool_verb {
  const char* name;
  const char* summary;         // one line
  const char* operands;        // as shown in the help: "IN OUT"; "" for none
  const char* text;            // more paragraphs for the help; may be NULL
  const tool_option* options;  // up to one whose name is NULL; without the shared options
  int operands_min;
  int operands_max;
  int (*run)(const tool_call* call);
} tool_verb;

#define TOOL_OPERANDS_ANY INT_MAX
#define TOOL_OPTIONS 16

// The value of --color.
typedef enum tool_color { TOOL_COLOR_AUTO, TOOL_COLOR_ALWAYS, TOOL_COLOR_NEVER } tool_color;

// An option as it was given.
typedef struct tool_given {
  const char* name;
  const char* value;  // "" if the option takes no argument
} tool_given;

// A parsed command line. Everything is borrowed from argv.
struct tool_call {
  const tool_verb* verb;
  char* const* operands;
  int operand_count;
  // By the index of the option in verb->options; NULL: not given; "" if the option takes no argument.
  const char* values[TOOL_OPTIONS];
  const tool_given* given;  // all options of the verb, in the order of the command line
  size_t given_count;
  bool is_json;
  tool_color color;
};

// The value of an option by its name, the last one if it was given several times; NULL: not given.
const char* tool_option_value(const tool_call* call, const char* name);
// The values of an option that may be given several times, one after another: *at is 0 at first. NULL: no
// more.
const char* tool_option_next(const tool_call* call, const char* name, size_t* at);

// Prints an error, "tidemark VERB: ...", to standard error and returns TOOL_USAGE. Text from files is
// sanitised for the terminal.
__attribute__((format(printf, 1, 2))) int tool_fail(const char* format, ...);

// The library's last error text, without the name of a library function, which means nothing to users.
const char* tool_error(void);

// Reports that standard output cannot be written, with errno; returns TOOL_USAGE.
int tool_output_failed(void);

// Parses the command line of a verb, whose name is argv[0], and runs it. Handles errors and --help. Returns
// the exit status.
int tool_verb_run(const tool_verb* verb, int argc, char** argv);
// The options that every verb has, up to one whose name is NULL.
extern const tool_option tool_shared_options[];

// Zeroed memory for `count` items of `bytes` each, and longer memory. They end the program if there is none.
// Freed by free().
void* tool_alloc(size_t count, size_t bytes);
void* tool_grow(void* memory, size_t count, size_t bytes);
// A copy of a text, which may be NULL; freed by free().
char* tool_text_copy(const char* text);
// A stream that writes to memory, as open_memstream() makes it; never NULL.
FILE* tool_text_open(char** text, size_t* bytes);
// Reports that there is no memory, and ends the program.
_Noreturn void tool_out_of_memory(void);

// Prints no more errors and warnings: another process prints the same ones.
void tool_messages_mute(void);

// Prints a warning about the answer to standard error, in the same form.
__attribute__((format(printf, 1, 2))) void tool_warn(const char* format, ...);

// ---------------------------------------------------------------------------------------------------
// Sizes (size.c): "512", "24GiB", "1.5G"; K M G T and KiB ... are powers of 1024, KB ... of 1000

bool tool_size_parse(const char* text, uint64_t* out);
// Refuses a size of device memory (`bytes`, parsed from `text`) below 1 MiB without a unit, which was
// probably forgotten. Then it asks for the unit on standard error and returns TOOL_USAGE; otherwise it
// returns 0.
int tool_size_ask(const char* option, const char* text, uint64_t bytes);
// The largest unit in which a size is at least 1; and a size in a unit, with two decimals unless that is
// bytes: "640 B", "26.53 GiB". They return the caller's buffer.
typedef enum tool_unit { TOOL_UNIT_B, TOOL_UNIT_KIB, TOOL_UNIT_MIB, TOOL_UNIT_GIB, TOOL_UNIT_TIB } tool_unit;
#define TOOL_SIZE_TEXT 32
tool_unit tool_size_unit(uint64_t largest);
const char* tool_size_in(uint64_t bytes, tool_unit unit, char out[TOOL_SIZE_TEXT]);
// A size in its own unit.
const char* tool_size_text(uint64_t bytes, char out[TOOL_SIZE_TEXT]);
// Two sizes in one unit, which is so small that different sizes look different; each in its own unit if one
// would look like 0.
void tool_size_pair(uint64_t a, uint64_t b, char out_a[TOOL_SIZE_TEXT], char out_b[TOOL_SIZE_TEXT]);
// Parses a whole number in decimal digits of at most `most`.
bool tool_number_parse(const char* text, uint64_t most, uint64_t* out);
// Parses a decimal number of seconds from `least` to `most`.
bool tool_seconds_parse(const char* text, double least, double most, double* out);
// A share as percent with one decimal: "62.0 %". Only a whole is "100.0 %", and only nothing is "0.0 %".
#define TOOL_SHARE_TEXT 32
const char* tool_share_text(double share, char out[TOOL_SHARE_TEXT]);
// The order of two numbers, for qsort(): below 0, 0 or above.
static inline int tool_compare(uint64_t a, uint64_t b) { return (a > b) - (a < b); }
// The share of a part in a whole; 0 if the whole is 0.
static inline double tool_share(uint64_t part, uint64_t whole) {
  return whole != 0 ? (double)part / (double)whole : 0;
}

// The share of reserved memory that was live at the peaks. NAN if more was live than reserved: the recording
// contradicts itself, or completes releases later than the replay.
static inline double tool_utilisation(uint64_t live, uint64_t reserved) {
  return live <= reserved ? tool_share(live, reserved) : (double)NAN;
}

// ---------------------------------------------------------------------------------------------------
// Files (open.c, save.c, same.c)

// Reads a whole file, or standard input for "-". Decompresses it (xz, gzip, zstd), detects its format, and
// shows progress on standard error if it takes over a second. Returns 0, or prints an error and returns
// TOOL_USAGE.
int tool_trace_read(const char* path, tide_trace** out);
// The same without a message: the error stays in the thread's record.
tide_status tool_trace_load(const char* path, tide_trace** out);
// The same, but MiniMalloc's CSV is read as a planning problem, and the trace is NULL. Any other file is read
// as a trace, and the problem is NULL.
int tool_problem_read(const char* path, tide_problem** out_problem, tide_trace** out_trace);
// Sets the limit on the decompressed size of a file; 0: the default, which depends on its size.
void tool_unpacked_allow(uint64_t bytes);

// Writes a file, or to standard output for "-", compressed if the name ends in .xz, .gz or .zst. `write` is
// called once with `what` and the sink. After a failure an existing file is unchanged. `out_bytes` (may be
// NULL) gets the number of bytes written.
typedef tide_status tool_file_writer(const void* what, const tide_sink* sink);
int tool_file_write(const char* path, tool_file_writer* write, const void* what, uint64_t* out_bytes);
// The same for a trace.
int tool_trace_write(const tide_trace* trace, const char* path, tide_format format);
int tool_trace_write_counted(const tide_trace* trace, const char* path, tide_format format,
                             uint64_t* out_bytes);

// Do two names refer to the same ordinary file, which may not exist yet (same.c)? And would an output replace
// an input, which may be "-" for standard input?
bool tool_file_is_same(const char* a, const char* b);
bool tool_file_is_input(const char* path, const char* input);

// ---------------------------------------------------------------------------------------------------
// Progress (progress.c): a bar on standard error, only on a terminal and after a second

typedef struct tool_progress tool_progress;
tool_progress* tool_progress_begin(const char* what);
void tool_progress_show(tool_progress* progress, double share);  // 0 to 1; below 0: unknown; cheap
void tool_progress_rename(tool_progress* progress, const char* what);
// Waits for a change, with the lock held, at most until the bar may move again.
void tool_progress_wait(pthread_cond_t* changed, pthread_mutex_t* lock);
void tool_progress_end(tool_progress* progress);
// The time left, as the bar shows it, after a share of the work: "  12 s left"; "" if it is unknown.
#define TOOL_PROGRESS_LEFT 32
const char* tool_progress_left(double share, uint64_t elapsed_ns, char out[TOOL_PROGRESS_LEFT]);
void tool_progress_clear(void);  // removes a bar before something else is printed
void tool_progress_quiet(void);  // the calling thread shows no bars from now on

// ---------------------------------------------------------------------------------------------------
// The answer of a verb (emit.c): one tree of facts, printed as JSON or as text

typedef struct tool_emit tool_emit;

// Is standard output coloured, by --color or else by the terminal?
bool tool_color_is_wanted(const tool_call* call);

// Begins the answer of a verb, as text or, with --json, as one JSON object. Text is coloured as --color says.
tool_emit* tool_emit_begin(const tool_call* call);
// Prints the answer and flushes standard output; returns 0, or TOOL_USAGE if it could not be written.
int tool_emit_end(tool_emit* emit);
// Discards the answer. Nothing is printed before the end, so a verb that fails leaves no partial answer.
void tool_emit_drop(tool_emit* emit);

// Ends the answer and returns its text instead of printing it; freed by free().
char* tool_emit_take(tool_emit* emit);

// A heading, only in text.
void tool_emit_title(tool_emit* emit, const char* format, ...) __attribute__((format(printf, 2, 3)));
// A paragraph, wrapped to the width of the terminal (at most 100), only in text.
void tool_emit_words(tool_emit* emit, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Lines that are printed as they are, only in text; text from a file must be sanitised. And is text coloured?
void tool_emit_drawing(tool_emit* emit, const char* lines);
bool tool_emit_has_color(const tool_emit* emit);

// One fact: `"key": value` in JSON; a line "label   value" with aligned values in text. If the label is NULL,
// it is only in JSON; if the key is NULL, only in text.
void tool_emit_uint(tool_emit* emit, const char* key, const char* label, uint64_t value);
// A size; in text with two decimals in the largest unit that gives at least 1.
void tool_emit_bytes(tool_emit* emit, const char* key, const char* label, uint64_t bytes);
// A change from `a` to `b` bytes, with its sign.
void tool_emit_change(tool_emit* emit, const char* key, const char* label, uint64_t a, uint64_t b);
// A number that is not finite is null in JSON and "-" in text.
void tool_emit_real(tool_emit* emit, const char* key, const char* label, double value, int decimals);
// A share, such as a utilisation: a fraction with four decimals in JSON, percent in text; not finite: as
// above.
void tool_emit_share(tool_emit* emit, const char* key, const char* label, double share);
void tool_emit_bool(tool_emit* emit, const char* key, const char* label, bool value);  // text: yes, no
// Any text, which is sanitised (display.h). NULL is null in JSON and "-" in text.
void tool_emit_text(tool_emit* emit, const char* key, const char* label, const char* text);
void tool_emit_format(tool_emit* emit, const char* key, const char* label, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
// A value that may be unknown: null in JSON and "-" in a table, but no line in a list of facts.
static inline void tool_emit_uint_if(tool_emit* emit, bool is_known, const char* key, const char* label,
                                     uint64_t value) {
  if (is_known) tool_emit_uint(emit, key, label, value);
  else tool_emit_text(emit, key, NULL, NULL);
}
static inline void tool_emit_bytes_if(tool_emit* emit, bool is_known, const char* key, const char* label,
                                      uint64_t bytes) {
  if (is_known) tool_emit_bytes(emit, key, label, bytes);
  else tool_emit_text(emit, key, NULL, NULL);
}
// A list of numbers, only in JSON.
void tool_emit_list(tool_emit* emit, const char* key, const double* values, size_t count, int decimals);

// Begins and ends a nested object. In text it is a heading, if there is a label.
void tool_emit_open(tool_emit* emit, const char* key, const char* label);
void tool_emit_close(tool_emit* emit);

// Begins and ends a list of values, objects or lists, whose members have no keys; only in JSON.
void tool_emit_open_list(tool_emit* emit, const char* key);
void tool_emit_close_list(tool_emit* emit);
// A text as a member of such a list.
void tool_emit_list_text(tool_emit* emit, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Writes a text of any bytes as one of JSON, in quotation marks.
void tool_json_put_text(FILE* to, const char* text, size_t bytes);

// A table: a list of objects under `key` in JSON, columns with headings in text. Begin it with its columns;
// then emit for each row one value per column, in their order, with the calls above and NULL for key and
// label. In text, numbers are aligned to the right; the last text column is truncated at the width of the
// terminal. A table whose key is NULL is only in text. The columns are borrowed until the end of the table.
typedef struct tool_column {
  const char* key;    // NULL: only in text
  const char* label;  // NULL: only in JSON
} tool_column;
void tool_emit_table(tool_emit* emit, const char* key, const tool_column* columns, size_t count);
void tool_emit_row(tool_emit* emit);        // begins a row
void tool_emit_table_end(tool_emit* emit);  // lays out the text

// ---------------------------------------------------------------------------------------------------
// Shell completion (completion.c): prints the script for "bash" or "zsh"; returns the exit status

int tool_completion_print(const char* shell);

// ---------------------------------------------------------------------------------------------------
// The verbs: each file has one table entry; main.c lists them

// All verbs, up to NULL.
extern const tool_verb* const tool_verbs[];

extern const tool_verb tool_info;
extern const tool_verb tool_report;
extern const tool_verb tool_plot;
extern const tool_verb tool_leaks;
extern const tool_verb tool_replay;
extern const tool_verb tool_whatif;
extern const tool_verb tool_plan;
extern const tool_verb tool_verify;
extern const tool_verb tool_convert;
extern const tool_verb tool_diff;
extern const tool_verb tool_survey;
extern const tool_verb tool_machines;
extern const tool_verb tool_top;
extern const tool_verb tool_ledger;
extern const tool_verb tool_view;

#endif
