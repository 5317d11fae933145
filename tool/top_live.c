// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark top on a terminal: a picture each second on the alternate screen, with plain escape sequences. The
// terminal is restored when the program ends, is stopped (Ctrl-Z) or gets a signal that ends it; then the
// signal is raised again, so that the shell sees it.
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "top.h"

#define SCREEN_ENTER "\033[?1049h\033[?25l\033[?7l\033[2J"  // alternate screen, no cursor, lines are cut
#define SCREEN_LEAVE "\033[?7h\033[?25h\033[?1049l"
#define SCREEN_HOME "\033[H"
#define LINE_CLEAR "\033[K"
#define REST_CLEAR "\033[J"

// ---------------------------------------------------------------------------------------------------
// The terminal

static struct termios terminal_before;
static bool has_keys;    // standard input is a terminal, which gives each key at once
static bool is_entered;  // the screen is ours

// Uses no stdio, and is registered with atexit().
static void terminal_leave(void) {
  if (!is_entered) return;
  is_entered = false;
  if (write(STDOUT_FILENO, SCREEN_LEAVE, sizeof SCREEN_LEAVE - 1) < 0) return;  // the terminal is gone
  if (has_keys) (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal_before);
}

static void terminal_enter(void) {
  has_keys = tcgetattr(STDIN_FILENO, &terminal_before) == 0;
  if (has_keys) {
    struct termios raw = terminal_before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  is_entered = true;
  (void)fputs(SCREEN_ENTER, stdout);
}

// ---------------------------------------------------------------------------------------------------
// Signals: blocked but for the time of the wait, so that none is missed

static volatile sig_atomic_t ending;       // the signal that ends the program; 0: none
static volatile sig_atomic_t is_stopping;  // SIGTSTP came
static volatile sig_atomic_t is_resumed;   // SIGCONT came

static void signal_catch(int number) {
  if (number == SIGTSTP) is_stopping = 1;
  else if (number == SIGCONT) is_resumed = 1;
  else if (number != SIGWINCH) ending = number;
}

static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH };
#define SIGNAL_COUNT (sizeof signals / sizeof signals[0])

// Sets up all handlers. `out_waiting` is the mask for the wait.
static void signals_begin(sigset_t* out_waiting) {
  struct sigaction action = { .sa_handler = signal_catch };
  sigset_t ours;
  (void)sigemptyset(&action.sa_mask);
  (void)sigemptyset(&ours);
  for (size_t i = 0; i < SIGNAL_COUNT; i++) (void)sigaddset(&ours, signals[i]);
  (void)sigprocmask(SIG_BLOCK, &ours, out_waiting);
  for (size_t i = 0; i < SIGNAL_COUNT; i++) {
    (void)sigdelset(out_waiting, signals[i]);
    (void)sigaction(signals[i], &action, NULL);
  }
}

// Ends the program by a signal, as if it had not been caught.
static void signal_raise(int number) {
  sigset_t one;
  (void)sigemptyset(&one);
  (void)sigaddset(&one, number);
  (void)signal(number, SIG_DFL);
  (void)raise(number);
  (void)sigprocmask(SIG_UNBLOCK, &one, NULL);
}

// Stops as the shell expects it. A program that was stopped finds the terminal as the shell left it.
static void signals_follow(void) {
  if (is_stopping) {
    is_stopping = 0;
    terminal_leave();
    (void)raise(SIGSTOP);
    is_resumed = 1;
  }
  if (is_resumed) {
    is_resumed = 0;
    terminal_leave();
    terminal_enter();
  }
}

// ---------------------------------------------------------------------------------------------------
// A picture

static void grid_add_bytes(tool_grid* grid, const tide_stat* stat, bool is_peak) {
  tool_grid_add_bytes(grid, top_bytes(is_peak ? stat->peak : stat->current), 0);
}

static void grid_add_count(tool_grid* grid, int64_t count) {
  char text[32];
  (void)snprintf(text, sizeof text, "%lld", (long long)count);
  tool_grid_add(grid, text, true);
}

static void grid_add_entry(tool_grid* grid, const top_list* list, const top_entry* entry) {
  char text[TOP_NAME];
  char bars[TOP_HISTORY_TEXT];
  grid_add_count(grid, entry->process.pid);
  top_cache_name(&entry->row, text);
  tool_grid_add(grid, text, false);
  grid_add_bytes(grid, &entry->row.reserved_bytes, false);
  grid_add_bytes(grid, &entry->row.reserved_bytes, true);
  grid_add_bytes(grid, &entry->row.allocated_bytes, false);
  grid_add_count(grid, entry->row.num_alloc_retries);
  grid_add_count(grid, entry->row.num_ooms);
  top_history(&entry->row, bars);
  const double silence_s = top_silence_s(list, &entry->process);
  if (silence_s > 0) (void)snprintf(text, sizeof text, "silent %.0f s", silence_s);
  tool_grid_add(grid, silence_s > 0 ? text : bars, false);
  tool_grid_add(grid, top_owner_name(entry), false);
}

// Prints a text line by line, at most `lines`, each cleared to its end.
static void lines_print(const char* text, size_t lines) {
  while (*text != '\0' && lines-- > 0) {
    const size_t bytes = strcspn(text, "\n");
    (void)printf("%.*s" LINE_CLEAR "%s", (int)bytes, text, lines > 0 ? "\r\n" : "");
    text += bytes + (text[bytes] == '\n' ? 1 : 0);
  }
}

static void table_print(const top_list* list, const struct winsize* size) {
  static const char* const headings[] = { "pid",     "cache", "reserved",   "peak", "allocated",
                                          "retries", "ooms",  "last 2 min", "name" };
  enum { COLUMNS = sizeof headings / sizeof headings[0] };
  tool_grid grid = { .columns = COLUMNS };
  char* text = NULL;
  size_t bytes = 0;
  FILE* const to = tool_text_open(&text, &bytes);
  for (size_t i = 0; i < COLUMNS; i++) tool_grid_add(&grid, headings[i], false);
  for (size_t i = 0; i < list->count; i++) grid_add_entry(&grid, list, &list->entries[i]);
  const tool_grid_style style = { .has_heading = true,
                                  .has_color = tool_color_is_wanted(list->call),
                                  .width = size->ws_col,
                                  .truncates = true };
  tool_grid_print(&grid, to, style);
  if (fclose(to) != 0) tool_out_of_memory();
  lines_print(text, size->ws_row > 3 ? size->ws_row - 2u : 1u);
  free(text);
}

// The ledgers, as `tidemark ledger` prints them, below the table of caches.
static void ledgers_print(const top_list* list, size_t rows) {
  const size_t above = 4 + (list->count > 0 ? list->count + 1 : 2);
  if (list->ledgers.count == 0 || rows <= above) return;
  const tool_call plain = { .verb = list->call->verb, .color = list->call->color };
  tool_emit* const emit = tool_emit_begin(&plain);
  ledger_list_emit(emit, &list->ledgers, false);
  char* const text = tool_emit_take(emit);
  (void)fputs(LINE_CLEAR "\r\n", stdout);
  lines_print(text, rows - above);
  free(text);
}

static void picture_print(const top_list* list, double interval_s) {
  struct winsize size = { .ws_row = 24, .ws_col = 80 };
  char clock[16] = "";
  const time_t now = time(NULL);
  struct tm local;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    size = (struct winsize){ .ws_row = 24, .ws_col = 80 };
  }
  if (localtime_r(&now, &local) != NULL) (void)strftime(clock, sizeof clock, "%H:%M:%S", &local);
  (void)printf(SCREEN_HOME "%s  processes: %zu, refreshed every %g s; q ends" LINE_CLEAR "\r\n" LINE_CLEAR
                           "\r\n",
               clock, list->process_count, interval_s);
  if (list->count > 0) table_print(list, &size);
  else
    (void)fputs("No process publishes statistics. Start a program that uses Tidemark with" LINE_CLEAR
                "\r\nTIDEMARK_MONITOR=1 in its environment." LINE_CLEAR "\r\n",
                stdout);
  ledgers_print(list, size.ws_row);
  (void)fputs(REST_CLEAR, stdout);
}

// ---------------------------------------------------------------------------------------------------
// The loop

// Waits for a key, a signal or the time. Returns false if a key ends the program.
static bool key_wait(const sigset_t* waiting, double interval_s) {
  const struct timespec rest = { (time_t)interval_s, (long)(fmod(interval_s, 1) * 1e9) };
  fd_set keys;
  char key = 0;
  FD_ZERO(&keys);
  if (has_keys) FD_SET(STDIN_FILENO, &keys);
  const int ready = pselect(has_keys ? STDIN_FILENO + 1 : 0, &keys, NULL, NULL, &rest, waiting);
  if (ready <= 0) return true;
  return read(STDIN_FILENO, &key, 1) == 1 && key != 'q' && key != 'Q';
}

int top_live_run(top_list* list, double interval_s) {
  sigset_t waiting;
  int status = top_list_gather(list);
  if (status != TOOL_DONE) return status;
  (void)atexit(terminal_leave);
  signals_begin(&waiting);
  terminal_enter();
  for (bool goes_on = true; goes_on && status == TOOL_DONE && ending == 0;) {
    picture_print(list, interval_s);
    if (fflush(stdout) != 0) return tool_output_failed();
    goes_on = key_wait(&waiting, interval_s);
    if (ending == 0) signals_follow();
    if (goes_on && ending == 0) status = top_list_gather(list);
  }
  terminal_leave();
  if (ending != 0) signal_raise(ending);
  return status == TOOL_DONE ? TOOL_DONE : tool_fail("%s", tool_error());  // again, on the other screen
}
