// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Command lines. The options of a verb are a table, which drives both getopt_long and the help. Options and
// operands may be mixed; `--` ends the options. Every verb has the options of `tool_shared_options`.
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "display.h"
#include "tidemark/base.h"
#include "tool.h"

const tool_option tool_shared_options[] = {
  { "json", 0, NULL, "print one JSON object instead of text" },
  { "color", 0, "WHEN", "when to colour the output: auto (on a terminal; the default), always or never" },
  { "max-unpacked", 0, "SIZE",
    "limit on the decompressed size of a file (default: 256 times its size, between 64 MiB and 16 GiB)" },
  { "help", 'h', NULL, "print this text" },
  { NULL, 0, NULL, NULL },
};

enum { SHARED_JSON, SHARED_COLOR, SHARED_UNPACKED, SHARED_HELP, SHARED_COUNT };

// getopt_long returns CODE_BASE + the index of an option, above all letters; options of the verb come first.
#define CODE_BASE 256
#define HELP_INDENT 24
#define USAGE_TEXT 1024

static const char* running_verb;  // for messages
static bool is_mute;

// ---------------------------------------------------------------------------------------------------
// Messages and memory

__attribute__((format(printf, 1, 0))) static void message_put(const char* format, va_list arguments) {
  char text[2048];
  if (is_mute) return;
  (void)vsnprintf(text, sizeof text, format, arguments);
  char* const shown = tool_display_text(text, false);
  tool_progress_clear();
  (void)fprintf(stderr, "tidemark%s%s: %s\n", running_verb == NULL ? "" : " ",
                running_verb == NULL ? "" : running_verb, shown);
  free(shown);
}

void tool_messages_mute(void) { is_mute = true; }

int tool_fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  message_put(format, arguments);
  va_end(arguments);
  return TOOL_USAGE;
}

void tool_warn(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  message_put(format, arguments);
  va_end(arguments);
}

// Function names contain an underscore or are listed here. The name of a format is kept, because it helps the
// reader: "native: byte 16: ...".
static bool is_name_of_call(const char* text, size_t bytes) {
  static const char* const others[] = { "replay",    "ledger",  "trace", "intern",
                                        "lifetimes", "history", "verify" };
  if (memchr(text, '_', bytes) != NULL) return true;
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    if (strlen(others[i]) == bytes && memcmp(text, others[i], bytes) == 0) return true;
  }
  return false;
}

const char* tool_error(void) {
  const char* const text = tide_last_error()->text;
  const size_t bytes = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
  const bool has_call = strncmp(text + bytes, ": ", 2) == 0 && is_name_of_call(text, bytes);
  return has_call ? text + bytes + 2 : text;
}

int tool_output_failed(void) { return tool_fail("cannot write to standard output: %s", strerror(errno)); }

void tool_out_of_memory(void) {
  tool_progress_clear();
  (void)fputs("tidemark: out of memory\n", stderr);
  exit(TOOL_USAGE);
}

FILE* tool_text_open(char** text, size_t* bytes) {
  FILE* const to = open_memstream(text, bytes);
  if (to == NULL) tool_out_of_memory();
  return to;
}

void* tool_alloc(size_t count, size_t bytes) {
  void* const memory = calloc(count == 0 ? 1 : count, bytes);
  if (memory == NULL) tool_out_of_memory();
  return memory;
}

void* tool_grow(void* memory, size_t count, size_t bytes) {
  uint64_t total = 0;
  void* const longer = tide__mul(count, bytes, &total) ? realloc(memory, (size_t)total) : NULL;
  if (longer == NULL) tool_out_of_memory();
  return longer;
}

char* tool_text_copy(const char* text) {
  if (text == NULL) return NULL;
  char* const copy = tool_alloc(strlen(text) + 1, 1);
  memcpy(copy, text, strlen(text) + 1);
  return copy;
}

// ---------------------------------------------------------------------------------------------------
// Help

static void option_help_print(FILE* to, const tool_option* option) {
  char letter[] = "    ";
  if (option->text == NULL) return;
  if (option->letter != 0) (void)snprintf(letter, sizeof letter, "-%c, ", option->letter);
  const int length = fprintf(to, "  %s--%s%s%s", option->letter == 0 ? "    " : letter, option->name,
                             option->value == NULL ? "" : " ", option->value == NULL ? "" : option->value);
  const size_t column = length < 0 ? 0 : (size_t)length;
  const bool fits = column + 2 <= HELP_INDENT;
  (void)fprintf(to, "%s%*s", fits ? "" : "\n", (int)(fits ? HELP_INDENT - column : HELP_INDENT), "");
  tool_wrap(to, option->text, HELP_INDENT, HELP_INDENT, tool_text_columns(to));
}

// "FILE [--limit SIZE] ...": the operands and the options of the verb, without the shared options.
static void usage_text(const tool_verb* verb, char* out, size_t room) {
  size_t length = (size_t)snprintf(out, room, "%s", verb->operands);
  for (const tool_option* o = verb->options; o != NULL && o->name != NULL && length < room; o++) {
    if (o->text == NULL) continue;
    length += (size_t)snprintf(out + length, room - length, "%s[--%s%s%s]", length > 0 ? " " : "", o->name,
                               o->value == NULL ? "" : " ", o->value == NULL ? "" : o->value);
  }
}

static void verb_help_print(FILE* to, const tool_verb* verb) {
  char usage[USAGE_TEXT];
  const size_t width = tool_text_columns(to);
  const int length = fprintf(to, "usage: tidemark %s", verb->name);
  const size_t column = length < 0 ? 0 : (size_t)length + 1;
  usage_text(verb, usage, sizeof usage);
  if (*usage != '\0') (void)fputc(' ', to);
  tool_wrap(to, usage, column, column, width);
  (void)fputc('\n', to);
  tool_wrap(to, verb->summary, 0, 0, width);
  if (verb->text != NULL) {
    (void)fputc('\n', to);
    tool_wrap(to, verb->text, 0, 0, width);
  }
  (void)fputs("\noptions:\n", to);
  for (const tool_option* o = verb->options; o != NULL && o->name != NULL; o++) option_help_print(to, o);
  for (const tool_option* o = tool_shared_options; o->name != NULL; o++) option_help_print(to, o);
}

// ---------------------------------------------------------------------------------------------------
// Parsing a command line

typedef struct option_table {
  struct option longs[TOOL_OPTIONS + SHARED_COUNT + 1];
  char shorts[2 * (TOOL_OPTIONS + SHARED_COUNT) + 2];
  const tool_option* options[TOOL_OPTIONS + SHARED_COUNT];
  int count;
  int own_count;  // options of the verb; the shared ones follow
} option_table;

static void option_table_add(option_table* table, const tool_option* option) {
  const int place = table->count++;
  table->options[place] = option;
  table->longs[place] = (struct option){ option->name,
                                         option->value == NULL ? no_argument : required_argument, NULL,
                                         CODE_BASE + place };
  if (option->letter == 0) return;
  const size_t end = strlen(table->shorts);
  table->shorts[end] = option->letter;
  table->shorts[end + 1] = option->value == NULL ? '\0' : ':';
}

// The leading colon silences getopt_long: option_fail() reports errors.
static void option_table_make(option_table* table, const tool_verb* verb) {
  *table = (option_table){ .shorts = ":" };
  for (const tool_option* o = verb->options; o != NULL && o->name != NULL && table->count < TOOL_OPTIONS; o++)
    option_table_add(table, o);
  table->own_count = table->count;
  for (const tool_option* o = tool_shared_options; o->name != NULL; o++) option_table_add(table, o);
}

// Returns the index of the option that getopt_long found, or -1.
static int option_table_place(const option_table* table, int code) {
  if (code >= CODE_BASE) return code - CODE_BASE;
  for (int i = 0; i < table->count; i++) {
    if (table->options[i]->letter == code && code != 0) return i;
  }
  return -1;
}

static bool color_parse(const char* text, tool_color* out) {
  static const char* const words[] = { "auto", "always", "never" };
  for (int i = 0; i < 3; i++) {
    if (strcmp(text, words[i]) != 0) continue;
    *out = (tool_color)i;
    return true;
  }
  return false;
}

static int unpacked_parse(const char* text) {
  uint64_t bytes = 0;
  if (!tool_size_parse(text, &bytes) || bytes == 0)
    return tool_fail("--max-unpacked must be a size such as 24GiB, not '%s'", text);
  const int status = tool_size_ask("--max-unpacked", text, bytes);
  if (status == TOOL_DONE) tool_unpacked_allow(bytes);
  return status;
}

static int option_fail(char** argv, int code, const char* verb) {
  char letter[] = "-?";
  letter[1] = (char)optopt;
  const bool is_letter = optopt > 0 && optopt < CODE_BASE;
  const char* name = is_letter ? letter : argv[optind - 1];
  if (code == ':') return tool_fail("option '%s' needs a value; see tidemark %s --help", name, verb);
  if (optopt >= CODE_BASE) return tool_fail("option '%s' takes no value; see tidemark %s --help", name, verb);
  return tool_fail("unknown option '%s'; see tidemark %s --help", name, verb);
}

static void option_give(tool_call* call, tool_given* given, int place, const char* value) {
  call->values[place] = value;
  given[call->given_count++] = (tool_given){ call->verb->options[place].name, value };
}

// Applies one option. Returns false to end the program with *out_status.
static bool option_take(tool_call* call, tool_given* given, const option_table* table, int code, char** argv,
                        int* out_status) {
  const int place = option_table_place(table, code);
  *out_status = TOOL_USAGE;
  if (place < 0) {
    *out_status = option_fail(argv, code, call->verb->name);
    return false;
  }
  if (place < table->own_count) {
    option_give(call, given, place, optarg == NULL ? "" : optarg);
    return true;
  }
  switch (place - table->own_count) {
    case SHARED_JSON: call->is_json = true; return true;
    case SHARED_COLOR:
      if (color_parse(optarg, &call->color)) return true;
      *out_status = tool_fail("--color must be auto, always or never, not '%s'", optarg);
      return false;
    case SHARED_UNPACKED: *out_status = unpacked_parse(optarg); return *out_status == TOOL_DONE;
    default:
      verb_help_print(stdout, call->verb);
      *out_status = TOOL_DONE;
      return false;
  }
}

static bool operands_take(tool_call* call, int argc, char** argv) {
  const tool_verb* verb = call->verb;
  const int most = verb->operands_max;
  const int count = argc - optind;
  if (count < verb->operands_min || count > most) {
    const char* const problem = count > most ? "too many operands" : "missing operand";
    const char* const expected = *verb->operands != '\0' ? verb->operands : "none";
    (void)tool_fail("%s: expected %s; see tidemark %s --help", problem, expected, verb->name);
    return false;
  }
  call->operands = argv + optind;
  call->operand_count = count;
  return true;
}

// Each word of the command line has one option at most for each of its letters.
static size_t options_most(int argc, char** argv) {
  size_t count = 0;
  for (int i = 0; i < argc; i++) count += strlen(argv[i]) + 1;
  return count;
}

static int call_run(tool_call* call, tool_given* given, int argc, char** argv) {
  option_table table;
  option_table_make(&table, call->verb);
  call->given = given;
  optind = 1;
  for (int code; (code = getopt_long(argc, argv, table.shorts, table.longs, NULL)) != -1;) {
    int status = TOOL_USAGE;
    if (!option_take(call, given, &table, code, argv, &status)) return status;
  }
  return operands_take(call, argc, argv) ? call->verb->run(call) : TOOL_USAGE;
}

int tool_verb_run(const tool_verb* verb, int argc, char** argv) {
  tool_call call = { .verb = verb };
  tool_given* const given = tool_alloc(options_most(argc, argv), sizeof *given);
  running_verb = verb->name;
  const int status = call_run(&call, given, argc, argv);
  free(given);
  return status;
}

const char* tool_option_next(const tool_call* call, const char* name, size_t* at) {
  while (*at < call->given_count) {
    const tool_given* const given = &call->given[(*at)++];
    if (strcmp(given->name, name) == 0) return given->value;
  }
  return NULL;
}

const char* tool_option_value(const tool_call* call, const char* name) {
  for (int i = 0; call->verb->options != NULL && call->verb->options[i].name != NULL; i++) {
    if (strcmp(call->verb->options[i].name, name) == 0) return call->values[i];
  }
  return NULL;
}
