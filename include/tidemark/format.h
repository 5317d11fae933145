// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: reading and writing traces. PyTorch's memory snapshots are read and written as pickle and JSON
// without losing a key. Further formats are supported as far as they can hold a trace.
//
//   tide_trace* trace = NULL;
//   tide_status status = tide_trace_load("run.pickle", NULL, &trace);
//   if (status == TIDE_OK) status = tide_trace_save(trace, "run.json");
//   if (status != TIDE_OK) puts(tide_last_error()->text);
//   tide_trace_free(trace);
//
// Readers are safe on untrusted files. For a damaged or hostile file they return an error that names the
// byte, and they never take more memory than the limit allows. Nothing in a file is executed or looked up by
// name. Readers do not decompress; a tide_source may do so.
#ifndef TIDEMARK_FORMAT_H
#define TIDEMARK_FORMAT_H

#include "tidemark/trace.h"

TIDE_BEGIN_DECLS

// Every format: constant, value, name, usual file name ending, whether it can be read, description.
#define TIDE_FORMAT_MAP(X)                                                                                \
  X(PICKLE, 0, "pickle", "pickle", true, "a memory snapshot of PyTorch")                                  \
  X(JSON, 1, "json", "json", true, "the same as JSON")                                                    \
  X(NATIVE, 2, "tide", "tide", true, "columns in chunks with checksums, Tidemark's own")                  \
  X(RMM, 3, "rmm", "rmm.csv", true, "the log of RMM's logging adaptor")                                   \
  X(MINIMALLOC, 4, "minimalloc", "csv", true, "lifetimes and sizes of buffers, MiniMalloc's problem")     \
  X(CHROME, 5, "chrome", "trace.json", false, "a timeline for Perfetto and chrome://tracing")             \
  X(FOLDED, 6, "folded", "folded", false, "stacks and the bytes they hold at the peak, for flame graphs") \
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

// Describes a format. All fields are NULL or false if `format` is not a tide_format.
TIDE_API tide_format_info tide_format_describe(uint32_t format);
// The format with this name, or -1.
TIDE_API int tide_format_from_name(const char* name);

// The format of a file that begins with these bytes, or -1. TIDE_FORMAT_HEAD bytes are always enough.
#define TIDE_FORMAT_HEAD 4096u
TIDE_API int tide_format_detect(const void* head, size_t bytes);

// Limits that readers enforce on files and writers on traces:
//   - A size is below TIDE_FORMAT_BYTES, the address space of the largest processors. A range of memory ends
//     at 2^64 at most.
//   - The size of an OOM, a request that was refused, is below TIDE_FORMAT_REQUEST.
//   - Every entry has an action. If it is not a tide_action, its name is under "action" in the note's extra.
//   - Every segment has an address and a size.
//   - The sizes in a planning problem add up to less than 2^63. It has no other limits.
#define TIDE_FORMAT_BYTES ((uint64_t)1 << 57)
#define TIDE_FORMAT_REQUEST ((uint64_t)1 << 62)

typedef struct tide_read_options {
  uint32_t size;          // set by TIDE_READ_OPTIONS_INIT
  uint32_t format;        // a tide_format; TIDE_FORMAT_COUNT: detected from the first bytes
  uint64_t memory;        // most bytes that the trace and the reader take together. Early in a file the limit
                          // is lower: 64 MiB plus a multiple of the bytes read so far
  const tide_heap* heap;  // borrowed until the trace is freed; NULL for malloc
  // (optional) Called about once per MiB with the bytes read so far. Returning false cancels the read with
  // TIDE_ERR_STATE.
  bool (*on_progress)(void* user, uint64_t bytes);
  void* user;  // passed to on_progress
} tide_read_options;
// clang-format off
#define TIDE_READ_OPTIONS_INIT                                                                     \
  { TIDE_FIELD(size, sizeof(tide_read_options)), TIDE_FIELD(format, TIDE_FORMAT_COUNT),            \
    TIDE_FIELD(memory, (uint64_t)16 << 30), TIDE_FIELD(heap, NULL), TIDE_FIELD(on_progress, NULL), \
    TIDE_FIELD(user, NULL) }
// clang-format on

// Reads a trace to the end of the source. NULL options are the defaults. If a native file is truncated or
// damaged, the chunks before that place are read; if an RMM log is truncated, its complete rows. The trace
// then has `is_cut` set.
// Errors:  TIDE_ERR_FORMAT with the offset of the byte; TIDE_ERR_LIMIT if the file needs more memory than the
//          options allow; TIDE_ERR_NO_MEMORY; TIDE_ERR_ARGUMENT; any error of the source.
// Cost:    one pass; 48 bytes of memory per entry, and each distinct text, frame and stack once.
TIDE_API TIDE_NODISCARD tide_status tide_trace_read(const tide_source* source,
                                                    const tide_read_options* options, tide_trace** out);

// Writes a trace. tide_trace_read() accepts everything written in a readable format. What the formats keep:
//   NATIVE      everything
//   PICKLE      everything except the flags of tide_trace_about and fractions of a µs; PyTorch's viewers
//               open it
//   JSON        the same, except which lists were tuples
//   RMM         allocations, releases and failed allocations
//   MINIMALLOC  lifetimes and sizes; times are steps if the trace has steps, otherwise numbers of entries
//   FOLDED and PPROF describe the point at which the most bytes were requested and not yet released.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT for something the format cannot hold; any
//          error of the sink.
TIDE_API TIDE_NODISCARD tide_status tide_trace_write(const tide_trace* trace, uint32_t format,
                                                     const tide_sink* sink);

// The format whose usual ending a file name has, or -1. The longest matching ending counts: x.trace.json is
// a timeline, x.json a snapshot.
TIDE_API int tide_format_from_path(const char* path);

// Reads a trace from a file, or writes one to a file in the format of its ending. Saving replaces an existing
// file, which keeps its owner, group and mode; after an error it is unchanged. Links are followed, but not
// those that another user put into a folder like /tmp. A device or a pipe is written to.
// Errors:  as tide_trace_read() and tide_trace_write(); TIDE_ERR_STATE, with the errno, if the file cannot be
//          opened, read or written; TIDE_ERR_ARGUMENT if no format has this ending.
TIDE_API TIDE_NODISCARD tide_status tide_trace_load(const char* path, const tide_read_options* options,
                                                    tide_trace** out);
TIDE_API TIDE_NODISCARD tide_status tide_trace_save(const tide_trace* trace, const char* path);

// Adds pinned memory to a snapshot of devices, as PyTorch does since 2.13: the segments of `host`, a trace
// from tide_pinned_snapshot(), become the list "host_segments", and its entries the list "host_traces". Both
// are plain data in tide_trace_about.extra, where reading a file puts them, too. They count for no figure of
// the devices. Their device is -1.
// Errors:  TIDE_ERR_ARGUMENT, also if the trace has these lists already; TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT.
//          The trace's lists are then as they were.
// Cost:    some hundred bytes of the trace for each entry.
TIDE_API TIDE_NODISCARD tide_status tide_trace_add_host(tide_trace* trace, const tide_trace* host);

// ---------------------------------------------------------------------------------------------------
// Frames for people

// Whose code a frame of a stack is. A later kind says more about what the program was doing.
typedef enum tide_frame_kind {
  TIDE_FRAME_KIND_HIDDEN = 0,      // the interpreter's or the recording's; PyTorch's viewers hide it too
  TIDE_FRAME_KIND_NATIVE = 1,      // C or C++ of PyTorch, or of an unknown file
  TIDE_FRAME_KIND_STANDARD = 2,    // Python's standard library, or a script that starts programs
  TIDE_FRAME_KIND_WRAPPER = 3,     // a function of PyTorch that only calls another, in Python
  TIDE_FRAME_KIND_TORCH = 4,       // PyTorch, in Python
  TIDE_FRAME_KIND_PACKAGE = 5,     // another installed package
  TIDE_FRAME_KIND_OWN_NATIVE = 6,  // the program's own, in C or C++
  TIDE_FRAME_KIND_OWN = 7          // the program's own, in Python
} tide_frame_kind;

typedef struct tide_frames tide_frames;  // opaque; freed by tide_frames_free()

// Decides for every frame of a trace. The trace is borrowed until the frames are freed; frames that are added
// to it later are unknown. `heap` is borrowed as well; NULL: malloc and free.
// Errors:  TIDE_ERR_ARGUMENT for NULL, or a heap that lacks a function; TIDE_ERR_NO_MEMORY.
// Cost:    O(length of all names); a byte for each frame.
TIDE_API TIDE_NODISCARD tide_status tide_frames_new(const tide_trace* trace, const tide_heap* heap,
                                                    tide_frames** out);
TIDE_API void tide_frames_free(tide_frames* frames);

// The kind of a frame; TIDE_FRAME_KIND_NATIVE for an address.
TIDE_API tide_frame_kind tide_frames_kind(const tide_frames* frames, uint64_t frame);

// The place in a stack where the program asked for memory, and the line of a library behind it. Both are
// indices in the stack, whose frames are innermost first; its `count` means none.
typedef struct tide_frames_site {
  // The innermost frame of the program's own. Without one, the innermost frame of an installed package other
  // than PyTorch; without one, the outermost frame of PyTorch: the innermost is the same for all programs.
  size_t own;
  size_t called;  // among the frames inside that one, the best by the same rules
} tide_frames_site;
// Cost:    O(count).
TIDE_API tide_frames_site tide_frames_find_site(const tide_frames* frames, const uint64_t* stack,
                                                size_t count);

// The part of a file's name that identifies it: without the folder where packages are installed, or the
// folder that contains all of the program's own files. `file` is a text. It ends where the name ends, with a
// zero byte; it is empty if the file is unknown. `out_bytes` may be NULL.
// Owner:   the trace.
TIDE_API const char* tide_frames_path(const tide_frames* frames, uint32_t file, size_t* out_bytes);

TIDE_END_DECLS
#endif
