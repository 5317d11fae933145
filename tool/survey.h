// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the parts of tidemark survey share. The recordings of a job are found (survey_files.c), read and
// replayed one by one (survey_work.c, survey_row.c), and each becomes a small row. The rows are judged
// together (survey_judge.c) and printed (survey_emit.c). Several processes may share the work (mpi.c); lists
// and rows then travel between them as bytes (survey_pack.c).
#ifndef TIDEMARK_TOOL_SURVEY_H
#define TIDEMARK_TOOL_SURVEY_H

#include "advice.h"
#include "tool.h"

// ---------------------------------------------------------------------------------------------------
// Bytes between processes (survey_pack.c)

// A growing list of bytes; one of zeros is empty.
typedef struct tool_bytes {
  unsigned char* data;  // owned
  size_t count;
  size_t room;
  size_t next;  // the next to take
} tool_bytes;

void tool_bytes_fini(tool_bytes* bytes);
// Adds room for `count` bytes at the end and returns where they begin.
unsigned char* tool_bytes_extend(tool_bytes* bytes, size_t count);
void tool_bytes_append(tool_bytes* bytes, const tool_bytes* more);
void tool_bytes_put(tool_bytes* bytes, uint64_t number);
void tool_bytes_put_text(tool_bytes* bytes, const char* text);  // may be NULL
// Take what was put, in the same order; they return false at the end and for bytes that make no sense.
bool tool_bytes_take(tool_bytes* bytes, uint64_t* out);
bool tool_bytes_take_text(tool_bytes* bytes, char** out);  // freed by free(); may be NULL

// ---------------------------------------------------------------------------------------------------
// The processes that share a survey. Process 0 divides the work and prints the answer.

typedef void tool_bytes_taker(void* user, size_t from, tool_bytes* bytes);

typedef struct tool_team {
  size_t number;   // of this process
  size_t count;    // of processes
  size_t sharing;  // processes on this computer, which share its processors
  // Every process gives bytes to process 0, which takes those of one process after the other, its own first.
  void (*gather)(const tool_bytes* mine, tool_bytes_taker* take, void* user);
  // Process 0 gives every process its own of `count` shares.
  void (*scatter)(const tool_bytes* shares, tool_bytes* out_mine);
} tool_team;

// Makes the survey of this process part of a shared one. The team is borrowed until the end of the program.
void tool_survey_join(const tool_team* team);

// ---------------------------------------------------------------------------------------------------
// Files (survey_files.c)

typedef enum tool_found {
  TOOL_FOUND_NOTHING,  // the operand does not exist
  TOOL_FOUND_FOLDER,   // a folder without recordings
  TOOL_FOUND_FILE
} tool_found;

// A recording to read. If an operand leads to none, it stands in the list itself, so that it is reported.
typedef struct tool_survey_file {
  size_t operand;  // the number of the operand that led to it
  char* path;      // owned
  uint64_t bytes;  // on disk
  tool_found found;
  bool is_closed;  // this process may not read it
  size_t place;    // in the list of the whole job
  size_t process;  // that reads it
} tool_survey_file;

typedef struct tool_survey_files {
  tool_survey_file* items;  // owned
  size_t count;
  size_t room;
} tool_survey_files;

void tool_survey_files_fini(tool_survey_files* files);
void tool_survey_files_add(tool_survey_files* files, const tool_survey_file* file);

// Lists the operands, which are files and folders. The recordings of a folder are its files with a known
// ending, in natural order: rank2 comes before rank10.
void tool_survey_files_find(char* const* operands, size_t count, tool_survey_files* out);
// Lists what this process reads. `out_all` is the list of the whole job, which only process 0 gets.
void tool_survey_files_share(const tool_team* team, char* const* operands, size_t count,
                             tool_survey_files* out_all, tool_survey_files* out_mine);
// Merges a list of another process that sees files of its own, and notes that `process` sees them.
typedef struct tool_survey_pool tool_survey_pool;
tool_survey_pool* tool_survey_pool_new(size_t processes);
void tool_survey_pool_add(tool_survey_pool* pool, size_t process, tool_survey_files* files);  // empties it
// Divides the files, the largest first and each to the least loaded of those that see it. Frees the pool.
void tool_survey_pool_divide(tool_survey_pool* pool, tool_survey_files* out);

// The memory that a recording takes while it is read and replayed, estimated from its size and ending.
uint64_t tool_survey_file_memory(const tool_survey_file* file);
// The rank in a path: "rank3.pickle", "job_rank_12.pickle.xz", "rank-0/snapshot.pickle". False: none.
bool tool_survey_rank_of(const char* path, uint64_t* out);

// ---------------------------------------------------------------------------------------------------
// Rows (survey_row.c): a device of a recording

typedef struct tool_survey_trial {
  char* settings;  // owned; in PyTorch's grammar; empty: the defaults
  uint64_t reserved;
  uint64_t driver_ns;
  bool fits;
} tool_survey_trial;

// The numbers and flags of a row, in the order in which they travel.
#define TOOL_SURVEY_NUMBERS(X)                                                            \
  X(place) /* of its file in the list of the job */                                       \
  X(device)                                                                               \
  X(entries)                                                                              \
  X(allocated)    /* peak of live requests, each rounded up to 512 bytes */               \
  X(requested)    /* the same without rounding */                                         \
  X(reserved)     /* peak */                                                              \
  X(allocated_at) /* number of the entry; TIDE_LEDGER_BEFORE: before the first */         \
  X(reserved_at)                                                                          \
  X(first_ns)     /* time of the first entry */                                           \
  X(allocated_ns) /* time of that peak */                                                 \
  X(reserved_ns)                                                                          \
  X(waste)  /* reserved and not requested by any live request, at the peak of reserved */ \
  X(ooms)   /* refusals */                                                                \
  X(oom_at) /* the first: entry, time, bytes */                                           \
  X(oom_ns)                                                                               \
  X(oom_bytes)                                                                            \
  X(limit) /* for the replays; TIDE_NO_LIMIT: none */                                     \
  X(needs) /* what the recorded setting needs; 0: it does not serve every request */      \
  X(odd)   /* entries that contradict others */
#define TOOL_SURVEY_FLAGS(X)                                          \
  X(knows_reserved) /* the recording has segments */                  \
  X(has_times)      /* in nanoseconds since the first entry */        \
  X(is_absolute)    /* and since 1970 */                              \
  X(is_from_start)                                                    \
  X(is_cut) /* its end is missing */                                  \
  X(is_limit_inferred)                                                \
  X(has_settings) /* the recording contains those of its allocator */ \
  X(is_proof)     /* replays show what other settings would need */
#define TOOL_SURVEY_TEXTS(X)                               \
  X(error)    /* why it could not be read; NULL: it was */ \
  X(settings) /* of the recording */                       \
  X(cause)    /* of most of the waste */                   \
  X(during)   /* what the program did at the peak of reserved memory; may be NULL */

typedef struct tool_survey_row {
#define TOOL_SURVEY_NUMBER(name) uint64_t name;
#define TOOL_SURVEY_FLAG(name) bool name;
#define TOOL_SURVEY_TEXT(name) char* name;
  TOOL_SURVEY_NUMBERS(TOOL_SURVEY_NUMBER)
  TOOL_SURVEY_FLAGS(TOOL_SURVEY_FLAG)
  TOOL_SURVEY_TEXTS(TOOL_SURVEY_TEXT)  // owned
#undef TOOL_SURVEY_NUMBER
#undef TOOL_SURVEY_FLAG
#undef TOOL_SURVEY_TEXT
  tool_survey_trial* trials;  // owned
  size_t trial_count;

  // Set by the judgement.
  uint64_t rank;
  bool has_rank;
  double deviation;  // of the figure that deviates most
  int outlier_of;    // that figure, a tool_survey_figure; -1: not an outlier
} tool_survey_row;

typedef struct tool_survey_rows {
  tool_survey_row* items;  // owned
  size_t count;
  size_t room;
} tool_survey_rows;

void tool_survey_rows_fini(tool_survey_rows* rows);
tool_survey_row* tool_survey_rows_add(tool_survey_rows* rows);    // a row of zeros, valid until the next call
void tool_survey_rows_cut(tool_survey_rows* rows, size_t count);  // keeps the first `count`
void tool_survey_rows_put(const tool_survey_rows* rows, tool_bytes* out);
bool tool_survey_rows_take(tool_bytes* bytes, tool_survey_rows* out);  // adds to them

// Reads a file and adds a row for each of its devices with data, or one with an error. The replays use up to
// `threads` threads, and the limit of the call, or else the one that the recording shows.
void tool_survey_read(const tool_call* call, const tool_survey_file* file, size_t threads,
                      tool_survey_rows* out);

// ---------------------------------------------------------------------------------------------------
// Work (survey_work.c)

typedef struct tool_survey_plan {
  const tool_call* call;
  uint64_t memory;   // for recordings that are read side by side; 0: the default
  size_t processes;  // that share this computer
  bool is_shown;     // with a progress bar
} tool_survey_plan;

// Reads all files with all processors. Files are read side by side only while their estimated memory stays
// within the plan's, or within that of the largest.
void tool_survey_work(const tool_survey_files* files, const tool_survey_plan* plan, tool_survey_rows* out);

// ---------------------------------------------------------------------------------------------------
// Judgement (survey_judge.c)

// What ranks are compared by.
typedef enum tool_survey_figure {
  TOOL_SURVEY_ALLOCATED,
  TOOL_SURVEY_RESERVED,
  TOOL_SURVEY_WASTE,
  TOOL_SURVEY_FIGURES
} tool_survey_figure;

// Over the rows that know the figure.
typedef struct tool_survey_spread {
  size_t count;
  uint64_t least;
  uint64_t median;  // of an even number, the mean of the two in the middle, rounded down
  uint64_t mad;     // the median of the absolute differences from the median
  uint64_t most;
  size_t most_row;
} tool_survey_spread;

// A setting that was replayed on every rank.
typedef struct tool_survey_setting {
  const char* settings;  // borrowed from a row
  size_t options;        // number of options in it
  bool is_recorded;      // on every rank
  size_t short_ranks;    // ranks on which it does not serve every request
  uint64_t needs;        // the most that a rank reserves with it
  uint64_t median;
  uint64_t driver_ns;  // of all ranks
  size_t most_row;
} tool_survey_setting;

typedef struct tool_survey_judgement {
  size_t files;        // of the job
  size_t unread;       // files that could not be read
  bool ranks_by_name;  // every row's rank comes from its name, and is unique with its device
  bool has_one_setting;
  size_t outliers;
  tool_survey_spread spreads[TOOL_SURVEY_FIGURES];
  size_t oom_rows;
  bool is_first_oom_known;
  size_t first_oom;   // a row
  size_t second_oom;  // a row, if there are several
  // The setting for all.
  tool_verdict verdict;
  size_t proofs;                  // rows whose replays prove something
  uint64_t needs;                 // the most that a rank needs as recorded; 0: one does not run
  tool_survey_setting* settings;  // owned; the best first
  size_t setting_count;
  size_t advised;  // with verdict SET
} tool_survey_judgement;

// Numbers the ranks, judges the rows and puts them into order: unreadable ones, outliers, the others by rank.
void tool_survey_judge(const tool_survey_files* files, tool_survey_rows* rows, tool_survey_judgement* out);
void tool_survey_judgement_fini(tool_survey_judgement* judgement);
// The value of a figure; false: it is not known.
bool tool_survey_figure_of(const tool_survey_row* row, tool_survey_figure figure, uint64_t* out);
// The replay of a row with a setting; NULL: there is none.
const tool_survey_trial* tool_survey_trial_of(const tool_survey_row* row, const char* settings);

// Prints the answer; the exit status (survey_emit.c). At most `top` rows are printed.
int tool_survey_emit(const tool_call* call, const tool_survey_files* files, const tool_survey_rows* rows,
                     const tool_survey_judgement* judgement, size_t top);

#endif
