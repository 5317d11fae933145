// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: quotas. Processes of one user share the memory of a device by a ledger: a small file that they
// map. No daemon is needed. A process that joins a ledger is a member. It has a quota: a guarantee, a limit
// and a priority. To take is to count bytes as held by a member, and to give is to count them as free again.
//
//   tide_quota_options options = TIDE_QUOTA_OPTIONS_INIT;
//   options.ledger = "gpu0";
//   options.total_bytes = (uint64_t)64 << 30;      // of the ledger, if it does not exist yet
//   options.guarantee_bytes = (uint64_t)16 << 30;
//   tide_quota* quota = NULL;
//   tide_status status = tide_quota_join(&options, &quota);
//   if (status == TIDE_OK) status = tide_quota_take(quota, 1 << 30);  // before the machine is asked for it
//   if (status == TIDE_OK) status = tide_quota_give(quota, 1 << 30);  // after it went back to the machine
//   tide_quota_leave(quota);
//
// A quota never calls a machine or an allocator. An allocator calls take and give, and frees memory when its
// function on_ask is called. A ledger counts in units of 4 KiB: what a member holds is rounded up, totals and
// limits are rounded down. The rules:
// - [Q1] No take makes all members together hold more than the total. There is no slack.
// - [Q2] No member holds more than its limit, unless the limit was lowered below what it held.
// - [Q3] No member is asked to go below its guarantee, and a take beyond a member's own guarantee leaves room
//   for the unused guarantees of all others. The guarantees together are at most the total.
// - [Q4] A member that needs more asks the others: first to trim, that is to give back idle memory, the
//   lowest priority first; then to park memory, which only members of the same or a lower priority are asked
//   to do. It waits for a stated time at most. A member that does not answer is passed over.
// - [Q5] What a member held is free when its process has ended, even if SIGKILL ended it, at any moment.
//
// A ledger is named by a word, such as "gpu0", or by an absolute path. The file of a word lies in
// /dev/shm/tidemark-UID. It must be a regular file of this user with mode 0600, and no link; its folder must
// belong to this user and be closed to others. docs/ledger.md describes the format and its failure cases.
#ifndef TIDEMARK_QUOTA_H
#define TIDEMARK_QUOTA_H

#include "tidemark/base.h"
#include "tidemark/memory.h"

TIDE_BEGIN_DECLS

#define TIDE_QUOTA_MEMBERS 32  // the most members of a ledger
#define TIDE_QUOTA_NAME 32     // size of the name of a member, with its end
#define TIDE_QUOTA_LEDGER 512  // size of the name or path of a ledger, with its end
#define TIDE_QUOTA_MOST_BYTES ((UINT64_C(1) << 48) - 8192)  // the most of a total or a quota
#define TIDE_QUOTA_PRIORITY 1000                            // priorities lie between -1000 and 1000

// ---------------------------------------------------------------------------------------------------
// Members

typedef struct tide_quota tide_quota;

// What a member is asked to free.
typedef enum tide_quota_step {
  TIDE_QUOTA_TRIM = 1,  // memory that nothing uses
  TIDE_QUOTA_PARK = 2   // also memory that is handed out and whose contents can be moved elsewhere
} tide_quota_step;

// A request to free memory.
typedef struct tide_quota_ask {
  uint64_t bytes;        // wanted from this member; never more than it holds above its guarantee
  tide_quota_step step;  // how far it should go
  int32_t priority;      // of the member that asks
  // Of the member that asks. 0: no member asks; the limit or the total was lowered.
  int64_t pid;
  char name[TIDE_QUOTA_NAME];
} tide_quota_ask;

// Frees memory: gives it back to the machine and calls tide_quota_give(), as far as it can. It is called on
// the helper thread if there is one. Otherwise it is called inside take, give and poll, on the thread that
// calls them. It is never called on two threads at a time. Inside a take that waits, it is called with
// TIDE_QUOTA_TRIM only. It must not leave the ledger, and a tide_quota_take() inside it does not wait. `ask`
// is valid during the call.
typedef void (*tide_quota_ask_fn)(void* user, const tide_quota_ask* ask);

typedef struct tide_quota_options {
  uint32_t size;
  int32_t priority;          // lower ones are asked first
  const char* ledger;        // its name or path; borrowed for the call
  const char* name;          // of this member, for people; NULL: how the process was started
  uint64_t total_bytes;      // of the ledger if it is made now; 0: it must exist
  uint64_t guarantee_bytes;  // at most the limit
  uint64_t limit_bytes;      // TIDE_NO_LIMIT: the total alone
  uint64_t wait_ns;          // how long a take waits for others at most; 0: it never asks or waits
  tide_quota_ask_fn on_ask;  // NULL: this member frees nothing for others
  void* user;                // borrowed until the member has left
  const tide_heap* heap;     // NULL: malloc and free
  bool has_helper;           // a helper thread answers at once; otherwise the next take, give or poll does
} tide_quota_options;

#define TIDE_QUOTA_OPTIONS_INIT                                                                            \
  {                                                                                                        \
    TIDE_FIELD(size, sizeof(tide_quota_options)), TIDE_FIELD(priority, 0), TIDE_FIELD(ledger, NULL),       \
        TIDE_FIELD(name, NULL), TIDE_FIELD(total_bytes, 0), TIDE_FIELD(guarantee_bytes, 0),                \
        TIDE_FIELD(limit_bytes, TIDE_NO_LIMIT), TIDE_FIELD(wait_ns, 1000000000), TIDE_FIELD(on_ask, NULL), \
        TIDE_FIELD(user, NULL), TIDE_FIELD(heap, NULL), TIDE_FIELD(has_helper, false)                      \
  }

// Joins a ledger, and makes it if it does not exist and a total is given. A ledger that exists keeps its
// total. A process may join several times; each time it is another member. If others hold more than the new
// guarantee leaves, the join still succeeds. The guarantee is complete when they have given enough back.
// Errors: TIDE_ERR_ARGUMENT. TIDE_ERR_STATE, with an errno as `native`: the file cannot be used or made, is a
//         link, belongs to another user or is open to others; or a stopped process holds its lock.
//         TIDE_ERR_FORMAT: the file is no ledger, or is damaged. TIDE_ERR_UNSUPPORTED: its format has another
//         version. TIDE_ERR_LIMIT: it is full, or the guarantees would exceed the total.
//         TIDE_ERR_NO_MEMORY.
// Cost:   a file of 16 KiB, a descriptor, a mapping, and a thread if there is a helper.
TIDE_API TIDE_NODISCARD tide_status tide_quota_join(const tide_quota_options* options, tide_quota** out);

// Leaves the ledger: all that the member held is free for others. No other call may be in progress. In a
// child of fork() it only frees the child's copy. NULL is a no-op.
TIDE_API void tide_quota_leave(tide_quota* quota);

// Takes: counts `bytes` as held by this member, before they come from the machine. If they are not free, asks
// the others and waits for up to `wait_ns`. Waiting members of a higher priority go first, and so do those of
// the same priority that have waited longer: what they wait for is not taken. If the machine then fails, call
// tide_quota_give().
// Errors: TIDE_ERR_LIMIT: beyond the member's own limit, or more than the guarantees of others ever leave.
//         TIDE_ERR_NO_MEMORY: others hold it, and did not give enough back in time. TIDE_ERR_STATE in a child
//         of fork(), or if the file was removed and cannot be made again. TIDE_ERR_ARGUMENT.
// Cost:   a system call and a look at all members, some two microseconds, plus the time that it waits.
// Threads: any.
TIDE_API TIDE_NODISCARD tide_status tide_quota_take(tide_quota* quota, uint64_t bytes);

// The same without asking and without waiting, whatever `wait_ns` is. It calls no function of the program. So
// the caller may hold locks that on_ask takes.
TIDE_API TIDE_NODISCARD tide_status tide_quota_take_now(tide_quota* quota, uint64_t bytes);

// Gives: counts `bytes` as free again, after they went back to the machine, and wakes members that wait.
// Errors: TIDE_ERR_ARGUMENT for more bytes than are held; TIDE_ERR_STATE in a child of fork().
// Threads: any.
TIDE_API tide_status tide_quota_give(tide_quota* quota, uint64_t bytes);

// The bytes that a take could have now, without asking or waiting. Others may take them first. 0 in a child
// of fork(), and if the file cannot be used. Costs as much as a take. Threads: any.
TIDE_API uint64_t tide_quota_room(tide_quota* quota);

// Answers members that ask this one, if there are any. It is for a member without a helper that seldom takes
// or gives. Costs two loads if nobody asks. Threads: any.
TIDE_API void tide_quota_poll(tide_quota* quota);

// ---------------------------------------------------------------------------------------------------
// Watching and setting

// A ledger.
typedef struct tide_quota_ledger {
  char path[TIDE_QUOTA_LEDGER];
  uint64_t total_bytes;
  uint64_t held_bytes;       // by all members
  uint64_t guarantee_bytes;  // of all members
  uint64_t made_ns;          // since 1970
  uint32_t member_count;
  bool is_damaged;  // some values could not be read; members repair them at their next take or give
} tide_quota_ledger;

// A member of a ledger. Values of different members may be from slightly different times.
typedef struct tide_quota_member {
  int64_t pid;             // in its own PID namespace
  uint64_t pid_namespace;  // 0: not known
  bool is_in_namespace;    // the namespace is that of the calling process
  bool has_helper;
  int32_t priority;
  uint32_t index;      // of the member in the ledger
  uint64_t joined_ns;  // since 1970
  uint64_t held_bytes;
  uint64_t peak_bytes;
  uint64_t guarantee_bytes;
  uint64_t limit_bytes;   // TIDE_NO_LIMIT: none
  uint64_t wanted_bytes;  // what it waits for now
  uint64_t num_waits;     // takes that had to wait
  uint64_t num_failures;  // takes that others made fail
  uint64_t given_bytes;   // freed because others asked
  char name[TIDE_QUOTA_NAME];
} tide_quota_member;

// Receives a member of a ledger; `member` is NULL, once, for a ledger without members. Both are valid during
// the call only. Returning false ends the reading.
typedef bool (*tide_quota_fn)(void* user, const tide_quota_ledger* ledger, const tide_quota_member* member);

// Shows the members of a ledger, by their index. Members whose process has ended are left out. NULL: of all
// ledgers in the user's folder, by name; those that cannot be read are left out. A path that ends with '/' is
// another folder, where the files of ledgers are called "ledger-NAME".
// Errors: TIDE_ERR_ARGUMENT; TIDE_ERR_STATE, with an errno as `native`, ENOENT if there is no such ledger;
//         TIDE_ERR_FORMAT; TIDE_ERR_UNSUPPORTED; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_quota_read(const char* ledger, tide_quota_fn function, void* user);

// Makes a ledger without members. Errors: as tide_quota_join(); TIDE_ERR_STATE with EEXIST if it exists.
TIDE_API TIDE_NODISCARD tide_status tide_quota_make(const char* ledger, uint64_t total_bytes);

// Removes a ledger. Errors: TIDE_ERR_STATE if it has members (EBUSY) or does not exist (ENOENT); as
// tide_quota_read().
TIDE_API TIDE_NODISCARD tide_status tide_quota_remove(const char* ledger);

// Sets the total of a ledger. If the members hold more, they are asked to free the difference, the lowest
// priority first; nothing is taken from them. Errors: TIDE_ERR_LIMIT if the guarantees exceed it; as
// tide_quota_read().
TIDE_API TIDE_NODISCARD tide_status tide_quota_set_total(const char* ledger, uint64_t total_bytes);

// The shares of a member: its guarantee, limit and priority. The fields that `set` names are changed.
#define TIDE_QUOTA_SET_GUARANTEE 1u
#define TIDE_QUOTA_SET_LIMIT 2u
#define TIDE_QUOTA_SET_PRIORITY 4u
typedef struct tide_quota_shares {
  uint32_t size;
  uint32_t set;  // bits TIDE_QUOTA_SET_...
  uint64_t guarantee_bytes;
  uint64_t limit_bytes;
  int32_t priority;
} tide_quota_shares;
#define TIDE_QUOTA_SHARES_INIT TIDE_SIZED(tide_quota_shares)

// Sets shares of the members of a ledger that have this pid, at run time. If a limit is below what a member
// holds, the member is asked to free memory; nothing is taken from it. Errors: TIDE_ERR_HANDLE if no member
// has the pid; TIDE_ERR_LIMIT if the guarantees would exceed the total; TIDE_ERR_ARGUMENT, also for a
// guarantee above the limit; as tide_quota_read().
TIDE_API TIDE_NODISCARD tide_status tide_quota_set_shares(const char* ledger, int64_t pid,
                                                          const tide_quota_shares* shares);

TIDE_END_DECLS
#endif
