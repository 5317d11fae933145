// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A progress bar on standard error for work that takes over a second, on a terminal only. A call costs one
// read of the clock; the bar is drawn at most ten times a second. The time left follows from the time so far
// and the share that is done. Only one thread may use it at a time.
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "display.h"
#include "tool.h"

#define FIRST_NS UINT64_C(1000000000)
#define NEXT_NS UINT64_C(100000000)
#define WAIT_NS 50000000
#define BAR_CELLS 30
#define LEAST_SHARE 0.02   // that must be done for an estimate of the time left
#define LONGEST_S 359999u  // 99 h 59 min

struct tool_progress {
  char* what;  // owned, sanitised
  uint64_t began_ns;
  uint64_t due_ns;  // when it is drawn next
  bool has_terminal;
};

static bool bar_is_drawn;
static _Thread_local bool is_quiet;

static uint64_t progress_clock(void) {
  struct timespec now = { 0 };
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * FIRST_NS + (uint64_t)now.tv_nsec;
}

tool_progress* tool_progress_begin(const char* what) {
  tool_progress* const progress = tool_alloc(1, sizeof *progress);
  progress->what = tool_display_text(what, false);
  progress->has_terminal = !is_quiet && tool_terminal_columns(stderr) > 0;
  progress->began_ns = progress_clock();
  progress->due_ns = progress->began_ns + FIRST_NS;
  return progress;
}

void tool_progress_rename(tool_progress* progress, const char* what) {
  free(progress->what);
  progress->what = tool_display_text(what, false);
}

// The estimate is rounded up; nothing is said before there is a base for it, or when all should be done.
const char* tool_progress_left(double share, uint64_t elapsed_ns, char out[TOOL_PROGRESS_LEFT]) {
  out[0] = '\0';
  if (!(share >= LEAST_SHARE && share < 1)) return out;
  const double left_s = ceil((double)elapsed_ns * 1e-9 * (1 - share) / share);
  const unsigned seconds = left_s < LONGEST_S ? (unsigned)left_s : LONGEST_S;
  if (seconds < 60) (void)snprintf(out, TOOL_PROGRESS_LEFT, "  %u s left", seconds);
  else if (seconds < 3600)
    (void)snprintf(out, TOOL_PROGRESS_LEFT, "  %u min %02u s left", seconds / 60, seconds % 60);
  else (void)snprintf(out, TOOL_PROGRESS_LEFT, "  %u h %02u min left", seconds / 3600, seconds / 60 % 60);
  return out;
}

static void bar_draw(const tool_progress* progress, double share, uint64_t now_ns) {
  char bar[BAR_CELLS + 1] = { 0 };
  char left[TOOL_PROGRESS_LEFT];
  const uint64_t elapsed_ns = now_ns - progress->began_ns;
  const int filled = (int)(share * BAR_CELLS);
  for (int i = 0; i < BAR_CELLS; i++) bar[i] = i < filled ? '#' : '.';
  (void)fprintf(stderr, "\r\033[K%s  ", progress->what);
  if (share < 0) (void)fprintf(stderr, "%.0f s", (double)elapsed_ns * 1e-9);
  else
    (void)fprintf(stderr, "[%s] %3d %%%s", bar, (int)(share * 100),
                  tool_progress_left(share, elapsed_ns, left));
  (void)fflush(stderr);
  bar_is_drawn = true;
}

void tool_progress_show(tool_progress* progress, double share) {
  if (!progress->has_terminal) return;
  const uint64_t now_ns = progress_clock();
  if (now_ns < progress->due_ns) return;
  progress->due_ns = now_ns + NEXT_NS;
  bar_draw(progress, share > 1 ? 1 : share, now_ns);
}

void tool_progress_wait(pthread_cond_t* changed, pthread_mutex_t* lock) {
  struct timespec until = { 0 };
  (void)clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += WAIT_NS;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  (void)pthread_cond_timedwait(changed, lock, &until);
}

void tool_progress_quiet(void) { is_quiet = true; }

void tool_progress_clear(void) {
  if (is_quiet || !bar_is_drawn) return;
  (void)fputs("\r\033[K", stderr);
  (void)fflush(stderr);
  bar_is_drawn = false;
}

void tool_progress_end(tool_progress* progress) {
  if (progress == NULL) return;
  tool_progress_clear();
  free(progress->what);
  free(progress);
}
