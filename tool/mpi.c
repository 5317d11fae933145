// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The `tidemark-mpi` command: tidemark survey with the processes of an MPI job. Bytes are given to process 0
// by one process after the other, in pieces whose size an int can hold. Who waits sleeps in between, because
// the processors belong to processes that still work. If a process ends early, it ends all others with it.
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "display.h"
#include "survey.h"
#include "tidemark/base.h"

#define PIECE_BYTES ((size_t)1 << 30)
#define SLEEP_NS 1000000
#define TAG 1
#define PATIENCE_S 10

static tool_team team;
static bool has_shared;  // this process took part in a survey
static bool has_ended;

// ---------------------------------------------------------------------------------------------------
// Bytes

// Sleeps until a message of a process is there.
static void message_await(size_t from) {
  int is_there = 0;
  (void)MPI_Iprobe((int)from, TAG, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
  while (!is_there) {
    (void)nanosleep(&(struct timespec){ .tv_nsec = SLEEP_NS }, NULL);
    (void)MPI_Iprobe((int)from, TAG, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
  }
}

static void number_send(uint64_t number, size_t to) {
  (void)MPI_Send(&number, 1, MPI_UINT64_T, (int)to, TAG, MPI_COMM_WORLD);
}

static uint64_t number_receive(size_t from) {
  uint64_t number = 0;
  message_await(from);
  (void)MPI_Recv(&number, 1, MPI_UINT64_T, (int)from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return number;
}

static int piece_of(size_t count, size_t at) {
  return (int)(count - at < PIECE_BYTES ? count - at : PIECE_BYTES);
}

static void bytes_send(const tool_bytes* bytes, size_t to) {
  number_send(bytes->count, to);
  for (size_t at = 0; at < bytes->count; at += PIECE_BYTES)
    (void)MPI_Send(bytes->data + at, piece_of(bytes->count, at), MPI_BYTE, (int)to, TAG, MPI_COMM_WORLD);
}

static void bytes_receive(tool_bytes* bytes, size_t from) {
  const size_t count = (size_t)number_receive(from);
  unsigned char* const data = tool_bytes_extend(bytes, count);
  for (size_t at = 0; at < count; at += PIECE_BYTES)
    (void)MPI_Recv(data + at, piece_of(count, at), MPI_BYTE, (int)from, TAG, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE);
}

// Process 0 asks one process after the other, so that none waits in the middle of sending.
static void team_gather(const tool_bytes* mine, tool_bytes_taker* take, void* user) {
  has_shared = true;
  if (team.number != 0) {
    (void)number_receive(0);
    bytes_send(mine, 0);
    return;
  }
  tool_bytes own = *mine;
  take(user, 0, &own);
  for (size_t from = 1; from < team.count; from++) {
    tool_bytes bytes = { .count = 0 };
    number_send(0, from);
    bytes_receive(&bytes, from);
    take(user, from, &bytes);
    tool_bytes_fini(&bytes);
  }
}

static void team_scatter(const tool_bytes* shares, tool_bytes* out_mine) {
  if (team.number != 0) {
    bytes_receive(out_mine, 0);
    return;
  }
  for (size_t to = 1; to < team.count; to++) bytes_send(&shares[to], to);
  tool_bytes_append(out_mine, &shares[0]);
}

// ---------------------------------------------------------------------------------------------------
// The program

// At exit: without this, the others would wait for a process that ran out of memory.
static void team_leave(void) {
  if (!has_ended) (void)MPI_Abort(MPI_COMM_WORLD, TOOL_USAGE);
}

static void team_begin(int* argc, char*** argv) {
  int number = 0;
  int count = 1;
  int sharing = 1;
  int level = 0;
  MPI_Comm here;
  (void)MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level);
  (void)atexit(team_leave);
  (void)MPI_Comm_rank(MPI_COMM_WORLD, &number);
  (void)MPI_Comm_size(MPI_COMM_WORLD, &count);
  (void)MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
  (void)MPI_Comm_size(here, &sharing);
  (void)MPI_Comm_free(&here);
  team = (tool_team){ .number = (size_t)number,
                      .count = (size_t)count,
                      .sharing = (size_t)sharing,
                      .gather = team_gather,
                      .scatter = team_scatter };
  tool_survey_join(&team);
}

// Waits for the others. A process that took no part, because of an error, waits only for those that did not
// either; the others cannot go on without it, and it ends them.
static void team_end(void) {
  MPI_Request request;
  int is_done = 0;
  (void)MPI_Ibarrier(MPI_COMM_WORLD, &request);
  (void)MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
  for (long ns = 0; !is_done; ns += SLEEP_NS) {
    if (!has_shared && ns / 1000000000 >= PATIENCE_S) exit(TOOL_USAGE);
    (void)nanosleep(&(struct timespec){ .tv_nsec = SLEEP_NS }, NULL);
    (void)MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
  }
  has_ended = true;
  (void)MPI_Finalize();
}

// Process 0 speaks for all: every process finds the same mistakes in the command line.
static int line_run(int argc, char** argv) {
  static const char usage[] = "usage: tidemark-mpi survey [OPTION ...] FOLDER|FILE ...\n\n"
                              "Started by mpirun or srun, it does the same as tidemark survey, with the "
                              "recordings divided\namong the processes. tidemark-mpi survey --help lists the "
                              "options.\n";
  const char* const word = argc > 1 ? argv[1] : "";
  tool_terminal_hide();  // mpirun may put a terminal of its own before a pipe
  if (team.number != 0) {
    tool_messages_mute();
    if (freopen("/dev/null", "w", stdout) == NULL) return TOOL_USAGE;
  }
  if (strcmp(word, tool_survey.name) == 0) return tool_verb_run(&tool_survey, argc - 1, argv + 1);
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return fputs(usage, stdout) < 0;
  if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
    return printf("tidemark-mpi %s\n", tide_version()) < 0;
  return tool_fail("the only verb is survey; for the others use tidemark");
}

int main(int argc, char** argv) {
  (void)signal(SIGPIPE, SIG_DFL);
  team_begin(&argc, &argv);
  int status = line_run(argc, argv);
  if (fflush(stdout) != 0) status = tool_output_failed();
  team_end();
  return status;
}
