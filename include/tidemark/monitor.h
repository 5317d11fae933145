// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: monitor. Lets other processes of the same user watch the caches of this one. The statistics lie
// in a small file in memory, the page. `tidemark top` reads the pages of all processes; so can any program.
//
//   tide_status status = tide_monitor_open(NULL);   // or set TIDEMARK_MONITOR=1 in the environment
//   if (status == TIDE_OK) status = tide_monitor_set_label(device, "rank 0");
//   tide_monitor_close();
//
// A page is off by default. While it is open, one helper thread gathers the statistics of all caches once a
// second; nothing is added to allocations and releases. The page is a file of mode 0600, in a folder of the
// user that is closed to others:
//   1. the folder that the environment variable TIDEMARK_MONITOR names, if its value begins with '/';
//   2. otherwise "tidemark" in $XDG_RUNTIME_DIR, or in /run/user/UID if that variable is not set;
//   3. otherwise /dev/shm/tidemark-UID.
// A folder is refused if it belongs to another user, if others may enter it, or if it is a symbolic link.
//
// If TIDEMARK_MONITOR is set when a process makes its first cache, the page is opened then; "" and "0" mean
// that it is not. If that fails, the process runs on without a page; tide_monitor_open() says why.
#ifndef TIDEMARK_MONITOR_H
#define TIDEMARK_MONITOR_H

#include "tidemark/base.h"
#include "tidemark/memory.h"

TIDE_BEGIN_DECLS

#define TIDE_MONITOR_ROWS 32      // caches that a page has room for; the oldest are shown
#define TIDE_MONITOR_POINTS 120   // of the history of a cache: one a second
#define TIDE_MONITOR_LABEL 32     // size of a label, with its end
#define TIDE_MONITOR_COMMAND 128  // size of a command line, with its end

// ---------------------------------------------------------------------------------------------------
// Publishing

// Opens the page of this process in `folder`, which is made if it does not exist. NULL: the folder described
// above. The page shows all caches that exist or will be made, of every kind. Does nothing if it is open.
// The page is removed by tide_monitor_close() and by exit(). That of a process that was killed is removed by
// the next reader. In a child of fork() the page is closed, and the parent's is not touched. If somebody
// removes or truncates the file, it is made again within a second.
// Errors: TIDE_ERR_STATE, with an errno as `native`: no folder could be used, no file made, or no thread
//         started. TIDE_ERR_ARGUMENT for a folder whose path is not absolute or too long.
// Cost:   creates a file of 80 KiB and a thread, which blocks all signals.
TIDE_API TIDE_NODISCARD tide_status tide_monitor_open(const char* folder);

// Ends the helper thread and removes the page. Does nothing if it is not open.
TIDE_API void tide_monitor_close(void);

// Publishes the present statistics now, and returns when readers see them. History points are not added.
// Errors: TIDE_ERR_STATE if no page is open, or if it could not be written, with the errno as `native`.
TIDE_API TIDE_NODISCARD tide_status tide_monitor_update(void);

// Writes the path of the page; "" if none is open. Returns its length, like snprintf().
TIDE_API size_t tide_monitor_path(char* text, size_t capacity);

// Names a cache (a tide_device_cache, tide_pinned_cache or tide_cpu_cache) for people who watch it. The page
// need not be open. NULL removes the label. Errors: TIDE_ERR_HANDLE for what is no cache of this process;
// TIDE_ERR_ARGUMENT for a text that is too long. Threads: any; the cache must not be freed meanwhile.
TIDE_API TIDE_NODISCARD tide_status tide_monitor_set_label(const void* cache, const char* label);

// ---------------------------------------------------------------------------------------------------
// Reading

typedef enum tide_monitor_kind {
  TIDE_MONITOR_DEVICE = 1,
  TIDE_MONITOR_PINNED = 2,
  TIDE_MONITOR_CPU = 3
} tide_monitor_kind;

// "device", "pinned" or "cpu"; "" for anything else. The text is static.
TIDE_API const char* tide_monitor_kind_name(tide_monitor_kind kind);

// One second of a cache.
typedef struct tide_monitor_point {
  uint64_t reserved_bytes;
  uint64_t allocated_bytes;
} tide_monitor_point;

// A cache of a process. All values are of one instant, and as exact as the statistics of the cache.
typedef struct tide_monitor_row {
  uint64_t serial;                 // caches of a process are numbered from 1, as they are made
  uint32_t kind;                   // a tide_monitor_kind
  int32_t device;                  // its index; -1 for pinned and CPU memory
  char policy[16];                 // "torch" or "tide"; "" for pinned and CPU memory
  char machine[16];                // "cuda", "host" or "dry"; "" for CPU memory
  char label[TIDE_MONITOR_LABEL];  // see tide_monitor_set_label()
  tide_stat reserved_bytes;        // taken from the machine or the system
  tide_stat active_bytes;          // of blocks that are handed out, or wait for streams
  tide_stat allocated_bytes;       // of blocks that are handed out; pinned memory: as active_bytes
  tide_stat requested_bytes;       // what active blocks were requested with; all 0 unless a device cache
  int64_t num_blocks;              // handed out; pinned memory: with those that wait
  int64_t num_allocs;              // allocations so far, without requests that failed
  int64_t num_alloc_retries;
  int64_t num_ooms;
  int64_t num_stream_waits;  // 0 unless a device cache
  uint64_t limit_bytes;      // on reserved memory; TIDE_NO_LIMIT: none
  uint64_t total_bytes;      // the device's memory; 0 unless a device cache
  uint64_t updated_ns;       // when the values were gathered; since 1970
  uint32_t point_count;
  tide_monitor_point points[TIDE_MONITOR_POINTS];  // the last seconds, the oldest first
} tide_monitor_row;

// A process that has a page.
typedef struct tide_monitor_process {
  int64_t pid;
  // False: it runs in another PID namespace, such as that of a container. `pid` is its number there.
  bool is_in_namespace;
  uint64_t pid_namespace;  // the number of its namespace; 0: not known
  uint32_t copy;           // counts from 0 if a process has several copies of the library
  uint32_t row_count;      // caches that are shown
  uint32_t left_out;       // caches for which the page has no room
  uint64_t opened_ns;      // when the page was opened; since 1970
  uint64_t updated_ns;     // when it was written last; more than some seconds ago if the process is stopped
  char command[TIDE_MONITOR_COMMAND];  // how it was started; may be truncated
  char version[16];                    // of its library
} tide_monitor_process;

// Receives a cache of a process; `row` is NULL, once, for a process without caches. Both are valid during the
// call only. Returning false ends the reading.
typedef bool (*tide_monitor_fn)(void* user, const tide_monitor_process* process, const tide_monitor_row* row);

// Shows the caches of all processes that have a page in `folder`, by rising pid. NULL: in the folders that
// are described above, those with the numbers 2 and 3 both. A folder that does not exist has no pages.
// Removes the pages of processes that are dead. Files that are not pages of this user, or of another version
// of the format, are ignored. Errors: TIDE_ERR_STATE, with the errno as `native`, if a folder cannot be read
// or is refused;
//         TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_monitor_read(const char* folder, tide_monitor_fn function,
                                                      void* user);

TIDE_END_DECLS
#endif
