// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: traces in files. PyTorch's memory snapshots are read and written as pickle and JSON, with every
// key they have; further formats are read or written where they can hold a trace.
//
//   tide_trace* trace = NULL;
//   tide_status status = tide_trace_load("run.pickle", NULL, &trace);
//   if (status == TIDE_OK) status = tide_trace_save(trace, "run.json");
//   if (status != TIDE_OK) puts(tide_last_error()->text);
//   tide_trace_free(trace);
//
// A reader trusts nothing: a damaged or hostile file is an error that names the byte where it was found,
// takes no more memory than the limit allows, and nothing in it is ever run or looked up by name. Compression
// is not its matter: a source may decompress as it goes.
#ifndef TIDEMARK_FORMAT_H
#define TIDEMARK_FORMAT_H

#include "tidemark/trace.h"

TIDE_BEGIN_DECLS

// Every format: constant, value, name, the usual ending of file names, can it be read, what it is.
#define TIDE_FORMAT_MAP(X)                                                                            \
  X(PICKLE, 0, "pickle", "pickle", true, "a memory snapshot of PyTorch")                              \
  X(JSON, 1, "json", "json", true, "the same as JSON")                                                \
  X(NATIVE, 2, "tide", "tide", true, "columns in chunks with checksums, Tidemark's own")              \
  X(RMM, 3, "rmm", "rmm.csv", true, "the log of RMM's logging adaptor")                               \
  X(MINIMALLOC, 4, "minimalloc", "csv", true, "lifetimes and sizes of buffers, MiniMalloc's problem") \
  X(CHROME, 5, "chrome", "trace.json", false, "a timeline for Perfetto and chrome://tracing")         \
  X(FOLDED, 6, "folded", "folded", false,                                                             \
    "call sites and the bytes they hold at the peak, for flame graphs")                               \
  X(PPROF, 7, "pprof", "pb", false, "the same with totals, for pprof")

typedef enum tide_format {
#define TIDE_FORMAT_ENUM(name, value, word, ending, reads, text) TIDE_FORMAT_##name = value,
  TIDE_FORMAT_MAP(TIDE_FORMAT_ENUM)
#undef TIDE_FORMAT_ENUM
      TIDE_FORMAT_COUNT
} tide_format;

typedef struct tide_format_info {
  const char* name;
  const char* ending;  // without the dot before it
  const char* text;
  bool can_read;
} tide_format_info;

// What is known of a format; all NULL for a number that is none. And the format of a name, or -1.
TIDE_API tide_format_info tide_format_describe(uint32_t format);
TIDE_API int tide_format_from_name(const char* name);

// The format of a file that begins with these bytes, or -1. TIDE_FORMAT_HEAD bytes are enough to tell.
#define TIDE_FORMAT_HEAD 4096u
TIDE_API int tide_format_detect(const void* head, size_t bytes);

// What files hold was memory, or could have been: a size is below TIDE_FORMAT_BYTES, the address space of
// the largest processors, and what lies somewhere ends at 2^64 at most. A request that was refused (the size
// of an OOM) was never memory, and is below TIDE_FORMAT_REQUEST. An entry has an action: one that is not
// among tide_action stands as a text under "action" in the extra of its note. A segment has an address and a
// size. Readers refuse a file that says something else, and writers a trace that does. A planning problem is
// about numbers: its sizes add up to less than 2^63.
#define TIDE_FORMAT_BYTES ((uint64_t)1 << 57)
#define TIDE_FORMAT_REQUEST ((uint64_t)1 << 62)

typedef struct tide_read_options {
  uint32_t size;          // set by TIDE_READ_OPTIONS_INIT
  uint32_t format;        // a tide_format; TIDE_FORMAT_COUNT: found from the first bytes
  uint64_t memory;        // bytes that the trace and the reader may take together; before as many were read
                          // as explain it, they take less: 64 MiB and so many for each byte
  const tide_heap* heap;  // caller keeps until the trace is freed; NULL for malloc
  // (optional) Called now and then with the bytes read so far; false ends the reading with TIDE_ERR_STATE.
  bool (*on_progress)(void* user, uint64_t bytes);
  void* user;  // caller keeps
} tide_read_options;
// clang-format off
#define TIDE_READ_OPTIONS_INIT                                                                     \
  { TIDE_FIELD(size, sizeof(tide_read_options)), TIDE_FIELD(format, TIDE_FORMAT_COUNT),            \
    TIDE_FIELD(memory, (uint64_t)16 << 30), TIDE_FIELD(heap, NULL), TIDE_FIELD(on_progress, NULL), \
    TIDE_FIELD(user, NULL) }
// clang-format on

// Reads a trace to the end of the source; NULL options are the defaults. Of a native file that is cut off or
// damaged, the chunks before that place are read, and of an RMM log that is cut off, its whole rows; the
// trace says so in `is_cut`.
// Errors:  TIDE_ERR_FORMAT with the offset of the byte; TIDE_ERR_LIMIT when more memory would be needed than
//          the options allow; TIDE_ERR_NO_MEMORY; TIDE_ERR_ARGUMENT; what the source returned.
// Cost:    one pass; 48 bytes of memory for an entry, and each text, frame and stack once.
TIDE_API TIDE_NODISCARD tide_status tide_trace_read(const tide_source* source,
                                                    const tide_read_options* options, tide_trace** out);

// Writes a trace. NATIVE holds all of it. PICKLE and JSON do but for the flags of tide_trace_about, times
// below a µs and, in JSON, which lists were tuples; PICKLE keeps to what PyTorch's viewers read. RMM holds
// allocations and releases; MINIMALLOC lifetimes and sizes: times are steps if the trace has those, otherwise
// numbers of entries. FOLDED and PPROF describe the moment when most bytes were requested and not yet
// released.
// What was written in a format that can be read, can be read.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT for what the format cannot hold; what the
//          sink returned.
TIDE_API TIDE_NODISCARD tide_status tide_trace_write(const tide_trace* trace, uint32_t format,
                                                     const tide_sink* sink);

// The format whose usual ending the name of a file has, or -1; of several the longest ending counts, so that
// x.trace.json is a timeline and x.json a snapshot.
TIDE_API int tide_format_from_path(const char* path);

// Reads a trace from a file, and writes one to a file in the format of its ending. A file that is there is
// replaced; after an error it may hold a part.
// Errors:  as tide_trace_read() and tide_trace_write(); TIDE_ERR_STATE, with the errno, for a file that
//          cannot be opened, read or written; TIDE_ERR_ARGUMENT for an ending of no format.
TIDE_API TIDE_NODISCARD tide_status tide_trace_load(const char* path, const tide_read_options* options,
                                                    tide_trace** out);
TIDE_API TIDE_NODISCARD tide_status tide_trace_save(const tide_trace* trace, const char* path);

TIDE_END_DECLS
#endif
