// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// All calls of the operating system. No other code includes system headers beyond the C library and pthreads.
// Calls that can fail return 0 or an errno.
#ifndef TIDEMARK_SRC_BASE_SYS_H
#define TIDEMARK_SRC_BASE_SYS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

// Time
uint64_t tide__sys_clock_ns(void);
uint64_t tide__sys_coarse_clock_ns(void);  // up to some milliseconds late, and much cheaper
void tide__sys_sleep_ns(uint64_t ns);
// The processor time that the calling thread has used.
uint64_t tide__sys_thread_cpu_ns(void);
// Sleeps if *word is `value`, until it is woken; may end early. tide__sys_futex_wake() wakes all sleepers.
void tide__sys_futex_wait(tide__atomic_u32* word, uint32_t value);
// The same with a timeout.
void tide__sys_futex_wait_for(tide__atomic_u32* word, uint32_t value, uint64_t ns);
void tide__sys_futex_wake(tide__atomic_u32* word);
// The same for a word in a shared mapping, between processes.
void tide__sys_shared_futex_wait_for(tide__atomic_u32* word, uint32_t value, uint64_t ns);
void tide__sys_shared_futex_wake(tide__atomic_u32* word);

// Makes all threads of the process execute a memory barrier, and whether the system can do that.
bool tide__sys_can_fence_all(void);
void tide__sys_fence_all(void);

// This computer and process
uint64_t tide__sys_page_bytes(void);
uint64_t tide__sys_memory_bytes(void);
uint64_t tide__sys_memory_and_swap_bytes(void);
uint32_t tide__sys_processors(void);
uint32_t tide__sys_usable_processors(void);  // those that the calling thread may run on
// The memory that this process can still touch, by what the computer has available and by the limits of
// control groups (sys_available.c); UINT64_MAX: unknown.
uint64_t tide__sys_available_bytes(void);
int tide__sys_process(void);

// NUMA (sys_numa.c): the node of the calling thread's processor, or -1 if it is unknown; and the preferred
// node for pages that the calling thread touches first, where -1 means any.
int tide__sys_node(void);
void tide__sys_prefer_node(int node);

// Starts a thread with all signals blocked.
int tide__sys_thread_start(pthread_t* out, void* (*run)(void*), void* argument);

// The stack of the calling thread (sys_stack.c): return addresses, innermost first, without this function and
// the next `skipped`. Returns 0 if the C library has no such function.
size_t tide__sys_stack(uint64_t* frames, size_t capacity, size_t skipped);
// The symbol at a code address. Texts live as long as the file stays loaded; NULL: unknown.
typedef struct tide__symbol {
  const char* name;  // of the function
  const char* file;  // that it was linked into
  uint64_t offset;   // of the address in that file
} tide__symbol;
bool tide__sys_symbol(uint64_t address, tide__symbol* out);

// Addresses. A reserved range has no access; sizes are whole pages.
int tide__sys_reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t* out);
int tide__sys_release(uint64_t address, uint64_t bytes);
// Replaces a reserved range by the pages of a file, without access, and the reverse.
int tide__sys_map_file(uint64_t address, uint64_t bytes, int file, uint64_t offset);
int tide__sys_map_nothing(uint64_t address, uint64_t bytes);
int tide__sys_protect(uint64_t address, uint64_t bytes, bool can_read, bool can_write);
// Maps private pages, readable and writable, at any address.
int tide__sys_map_private(uint64_t bytes, uint64_t* out);
// The same at a multiple of `alignment`, without reserving memory for all of it.
int tide__sys_map_sparse(uint64_t bytes, uint64_t alignment, uint64_t* out);
// Maps a file that other processes change as well: at any address, or in place of the mapping at `address`.
// Children of fork() do not get the mapping.
int tide__sys_map_shared(int file, uint64_t bytes, bool can_write, uint64_t address, uint64_t* out);
// Frees the memory of pages, which then read as zeros. The second function requests huge pages.
int tide__sys_purge(uint64_t address, uint64_t bytes);
void tide__sys_ask_huge_pages(uint64_t address, uint64_t bytes);
// Do children of fork() get the range? New mappings they do.
void tide__sys_share_with_children(uint64_t address, uint64_t bytes, bool is_shared);
// Do children get copies of pages that a driver has locked? Before Linux 5.9 the parent may get the copy at
// its next write, and the driver goes on with the old page.
bool tide__sys_copies_locked_pages(void);
// Touches every page of a new mapping, with up to `most_threads` threads, the calling one included; 0: up to
// 16. Uses one for each 8 MiB, and no more than processors. Threads inherit the preferred NUMA node. The
// first byte of each page becomes 0. The second function returns the number of threads.
void tide__sys_touch(uint64_t address, uint64_t bytes, uint32_t most_threads);
uint32_t tide__sys_touch_threads(uint64_t bytes, uint32_t most_threads);
// Is the address space of the process limited?
bool tide__sys_has_address_limit(void);
// Is there a page at every address of a range?
bool tide__sys_is_mapped(uint64_t address, uint64_t bytes);
// Copies from, or to, an address that may be invalid: EFAULT then.
int tide__sys_read_any(void* destination, uint64_t source, uint64_t bytes);
int tide__sys_write_any(uint64_t destination, const void* source, uint64_t bytes);
int tide__sys_lock_pages(uint64_t address, uint64_t bytes);
void tide__sys_unlock_pages(uint64_t address, uint64_t bytes);

// Files that live in memory
int tide__sys_file_new(const char* name, int* out);
// Gives a file so many bytes, or so many at least, with their memory. EFBIG: the process may not have such a
// file; the system would send a signal.
int tide__sys_file_grow(int file, uint64_t bytes);
int tide__sys_file_fill(int file, uint64_t bytes);
// Seals a file, so that no holder of a descriptor can shrink it; and whether a file is sealed. The second
// function accepts any descriptor and reads nothing from it.
int tide__sys_file_seal(int file);
bool tide__sys_file_is_sealed(int file);
int tide__sys_file_punch(int file, uint64_t offset, uint64_t bytes);
// Opens the file of a descriptor of a process again, with its own locks.
int tide__sys_file_reopen(int process, int file, int* out);
int tide__sys_file_duplicate(int file, int* out);
// Makes the descriptor `old` refer to what `next` refers to; both stay open.
int tide__sys_file_replace(int next, int old);
// Copies a descriptor of another process, with its open file description. EPERM: the system does not let this
// process trace that one.
int tide__sys_file_fetch(int process, int file, int* out);
// The position of an open file description, which all copies of a descriptor share.
int tide__sys_file_seek(int file, uint64_t position);
int tide__sys_file_position(int file, uint64_t* out);
void tide__sys_file_close(int file);
int tide__sys_file_put(int file, const void* data, size_t bytes);  // at its position, all of it
int tide__sys_file_bytes(int file, uint64_t* out);
int tide__sys_file_read(int file, uint64_t offset, uint64_t* out);
int tide__sys_file_write(int file, uint64_t offset, uint64_t value);
// Locks a range for this open file description, until the last copy of the descriptor is closed.
int tide__sys_file_lock(int file, uint64_t offset, uint64_t bytes);
// The same, but no other description may have a lock there: EAGAIN then. And its end.
int tide__sys_file_own(int file, uint64_t offset, uint64_t bytes);
void tide__sys_file_disown(int file, uint64_t offset, uint64_t bytes);
// Does one lock of another open file description cover the whole range?
bool tide__sys_file_has_lock_over(int file, uint64_t offset, uint64_t bytes);
// Does another open file description have a lock in the range?
bool tide__sys_file_is_locked(int file, uint64_t offset, uint64_t bytes);

// Sockets between processes of one user (sys_socket.c). Sending and receiving time out after some seconds.
// Accepting does not: another thread ends it with tide__sys_socket_wake(). A packet arrives whole, with its
// files, or the call returns EPROTO.
#define TIDE__SYS_SOCKET_FILES 32  // in one packet
int tide__sys_socket_listen(const char* name, int* out);
int tide__sys_socket_accept(int listener, int* out);
int tide__sys_socket_connect(const char* name, int* out);
void tide__sys_socket_wake(int socket);
int tide__sys_socket_send(int socket, const void* bytes, size_t count, const int* files, size_t file_count);
int tide__sys_socket_receive(int socket, void* bytes, size_t count, int* files, size_t file_count);

// Files that a user named (sys_save.c); tide__file_save() writes them. All links to a name are followed, also
// to a file that does not exist; but not those that another user put into a folder like /tmp (EACCES).
#define TIDE__SYS_PATH 4096
int tide__sys_links_follow(const char* path, char out[TIDE__SYS_PATH]);
typedef struct tide__sys_save {
  int file;                        // owned; what is written to; -1: none
  char target[TIDE__SYS_PATH];     // what is replaced
  char temporary[TIDE__SYS_PATH];  // the name until then; "": a device or a pipe, which is written to
} tide__sys_save;
// Opens a device or a pipe, which may wait for a reader. For a file, it only chooses the names.
int tide__sys_save_find(const char* path, tide__sys_save* out);
// Makes the file, with owner, group and mode of what it will replace.
int tide__sys_save_begin(tide__sys_save* save);
// Closes the file, and replaces the old one.
int tide__sys_save_end(tide__sys_save* save);
// Removes an unfinished file.
void tide__sys_save_drop(tide__sys_save* save);

// Files that the library names itself (sys_folder.c): processes of one user share them by name. A folder or
// file that is a link, belongs to another user (EPERM) or is open to others (EACCES) is refused, and so is
// anything but a regular file.
int tide__sys_folder_open(const char* path, bool makes, int* out);
// Calls `visit` with each name until it returns false.
int tide__sys_folder_visit(int folder, bool (*visit)(void* user, const char* name), void* user);
int tide__sys_folder_remove(int folder, const char* name);
// Makes a file of mode 0600 whose memory is allocated; EEXIST: the name is in use.
int tide__sys_page_new(int folder, const char* name, uint64_t bytes, int* out);
int tide__sys_page_open(int folder, const char* name, int* out);
// The same for reading and writing; a file that does not exist is made, with no bytes, if `makes` says so.
int tide__sys_shared_open(int folder, const char* name, bool makes, int* out);
int tide__sys_page_age(int file, uint64_t* out_ns);  // since its last change
// Does it still have a name, and so many bytes?
bool tide__sys_page_is_whole(int file, uint64_t bytes);
int tide__sys_page_get(int file, uint64_t offset, void* out, size_t bytes);  // ENODATA: it is too short
int tide__sys_page_put(int file, uint64_t offset, const void* data, size_t bytes);

// Makes a file without a name in a folder, for this process alone. Its space on the disk is taken.
int tide__sys_temporary_new(const char* folder, uint64_t bytes, int* out);

// Who a process is: when it began, in ticks since the computer was started (0: there is no such process), the
// PID namespace of this process, and how it was started.
uint64_t tide__sys_process_start(int64_t process);
uint64_t tide__sys_process_space(void);
void tide__sys_command(char* out, size_t room);
uint32_t tide__sys_user(void);
// A variable of the environment; NULL if it is not set, or if the program has more rights than its user.
const char* tide__sys_environment(const char* name);
uint64_t tide__sys_wall_clock_ns(void);  // since 1970

uint64_t tide__sys_random(void);

// Opens a library at run time. Returns NULL with the reason in `text`.
void* tide__sys_library_open(const char* name, char* text, uint64_t text_bytes);
void* tide__sys_library_symbol(void* library, const char* name);

#endif
