// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: status codes, the error record of each thread, the version, the heap for the library's own
// records, and sources and sinks of bytes.
//
//   void* address = NULL;
//   if (tide_machine_raw_alloc(machine, 0, 1 << 20, &address) != TIDE_OK) {
//     puts(tide_last_error()->text);
//   }
//
// Conventions of every header:
// - A call that can fail returns tide_status. Results come through the last parameters, which are set to
//   zero, NULL or false if the call fails. A call that fails has changed nothing.
// - Out of memory is an ordinary result: the object stays usable, and the call can be repeated.
// - The library never aborts, prints, or reads the environment on its own. TIDEMARK_MONITOR is the exception:
//   see monitor.h.
// - Handles are opaque. An object made by a `_new` call is freed by the matching `_free` call. Freeing NULL
//   is a no-op.
// - Structs with a `size` field are initialised with their TIDE_..._INIT macro, and only grow at their end.
//   The shorter struct of an older header is always accepted: missing fields have their defaults, and nothing
//   is written beyond its end. A longer struct is TIDE_ERR_ARGUMENT. See docs/stability.md.
#ifndef TIDEMARK_BASE_H
#define TIDEMARK_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define TIDE_BEGIN_DECLS extern "C" {
#define TIDE_END_DECLS }
#else
#define TIDE_BEGIN_DECLS
#define TIDE_END_DECLS
#endif

// TIDE_NODISCARD marks calls whose result must not be ignored. The result of a call that releases or frees
// something may be ignored.
#if defined(__GNUC__)
#define TIDE_API __attribute__((visibility("default")))
#define TIDE_NODISCARD __attribute__((warn_unused_result))
#define TIDE_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define TIDE_ALIGNED(bytes) __attribute__((aligned(bytes)))  // a field behind the padding of an older struct
#else
#define TIDE_API
#define TIDE_NODISCARD
#define TIDE_PRINTF(text, first)
#define TIDE_ALIGNED(bytes)
#endif

// The version. The build reads it from here.
#define TIDE_VERSION_MAJOR 0
#define TIDE_VERSION_MINOR 1
#define TIDE_VERSION_PATCH 0
#define TIDE_VERSION_NUMBER (TIDE_VERSION_MAJOR * 10000 + TIDE_VERSION_MINOR * 100 + TIDE_VERSION_PATCH)
#define TIDE_AT_LEAST(major, minor, patch) (TIDE_VERSION_NUMBER >= (major)*10000 + (minor)*100 + (patch))

// How the _INIT macros set a field: by its name, or by its position in C++ before C++20, which has no
// designated initialisers. The macros list all fields in order, so both have the same effect.
#if defined(__cplusplus) && __cplusplus < 202002L
#define TIDE_FIELD(name, ...) __VA_ARGS__
#else
#define TIDE_FIELD(name, ...) .name = __VA_ARGS__
#endif

// The _INIT of structs whose other fields are all zero.
#ifdef __cplusplus
#define TIDE_SIZED(type)             \
  ([] {                              \
    type tide_sized_{};              \
    tide_sized_.size = sizeof(type); \
    return tide_sized_;              \
  }())
#else
#define TIDE_SIZED(type) \
  { .size = sizeof(type) }
#endif

TIDE_BEGIN_DECLS

// Every status: name, value, text. A value never changes and is never reused.
#define TIDE_STATUS_MAP(X)                                                     \
  X(OK, 0, "success")                                                          \
  X(ERR_ARGUMENT, 2, "invalid argument")                                       \
  X(ERR_NO_MEMORY, 4, "out of memory")                                         \
  X(ERR_LIMIT, 6, "limit reached")                                             \
  X(ERR_HANDLE, 8, "unknown or stale handle")                                  \
  X(ERR_DEVICE, 10, "no such device, or an object of another device")          \
  X(ERR_STATE, 12, "not allowed in this state")                                \
  X(ERR_UNSUPPORTED, 14, "not supported here")                                 \
  X(ERR_ACCESS, 16, "no access")                                               \
  X(ERR_CAPTURE, 18, "not allowed while capturing, or the capture is invalid") \
  X(ERR_MACHINE, 20, "the machine reported an error")                          \
  X(ERR_FORMAT, 22, "the data is damaged, or not of a known format")

typedef enum tide_status {
#define TIDE_STATUS_ENUM(name, value, text) TIDE_##name = value,
  TIDE_STATUS_MAP(TIDE_STATUS_ENUM)
#undef TIDE_STATUS_ENUM
} tide_status;

// The name of a status ("TIDE_ERR_NO_MEMORY") and its meaning in words. The texts are static and never NULL.
TIDE_API const char* tide_status_name(tide_status status);
TIDE_API const char* tide_status_text(tide_status status);

#define TIDE_ERROR_TEXT 1536  // size of an error text; the longest is the report of a full device

// The last failure on a thread.
typedef struct tide_error {
  tide_status status;  // TIDE_OK if no call has failed on this thread
  int64_t native;      // the code of the layer below (a CUresult, an errno); 0: none
  const char* file;    // source location of the failure, for bug reports
  int line;
  char text[TIDE_ERROR_TEXT];  // the reason, with the values that matter; no newline at the end
} tide_error;

// The last failure on the calling thread. It stays until the next failure on that thread: a successful call
// does not clear it.
// Owner:   the thread. Copy the record to keep it.
// Threads: each thread has its own record.
TIDE_API const tide_error* tide_last_error(void);

// Sets the record of the calling thread and returns `status`. For code that implements a table of functions
// for Tidemark, such as a machine or a memory: `return TIDE_ERROR_SET(TIDE_ERR_NO_MEMORY, errno, "...");`.
// `file` must be a static string. The call allocates nothing; a text that is too long is truncated.
TIDE_API tide_status tide_error_set(tide_status status, int64_t native, const char* file, int line,
                                    const char* format, ...) TIDE_PRINTF(5, 6);
#define TIDE_ERROR_SET(status, native, ...) \
  tide_error_set((status), (native), __FILE__, __LINE__, __VA_ARGS__)

// The heap for an object's own records. Tidemark never puts records into the memory that it manages. A NULL
// heap in the options of an object means malloc and free. Its functions must not call Tidemark.
typedef struct tide_heap {
  // Returns `bytes` bytes (never 0) aligned to `alignment` (a power of two), or NULL. Called from any thread.
  void* (*alloc)(void* user, size_t bytes, size_t alignment);
  // Releases memory of `alloc`, with the same `bytes`. Never called with NULL.
  void (*release)(void* user, void* address, size_t bytes);
  void* user;  // borrowed until the object is freed
} tide_heap;

// A source of bytes. `read` writes up to `room` bytes (never 0) to `out` and sets their number; 0 means the
// end. Any status but TIDE_OK stops the reader, which returns it.
typedef struct tide_source {
  tide_status (*read)(void* user, void* out, size_t room, size_t* out_bytes);
  void* user;  // borrowed
} tide_source;

// A sink of bytes, which are written in order.
typedef struct tide_sink {
  tide_status (*write)(void* user, const void* data, size_t bytes);
  void* user;  // borrowed
} tide_sink;

// A source that reads an open file, pipe or socket from its current position, and a sink that writes to one.
// The caller keeps the descriptor. For a FILE* it is fileno(file); standard output is 1.
// Errors (of read and write): TIDE_ERR_STATE, with the errno as `native`.
TIDE_API tide_source tide_source_file(int descriptor);
TIDE_API tide_sink tide_sink_file(int descriptor);

// The version of the loaded library: a text such as "0.1.0", and a number like TIDE_VERSION_NUMBER.
TIDE_API const char* tide_version(void);
TIDE_API int tide_version_number(void);

TIDE_END_DECLS
#endif
