// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Mappings, page locks and memory files of Linux. Ranges of a file are marked as used by
// open-file-description locks. The kernel drops such a lock when the last copy of the descriptor is closed,
// also if the process is killed. So no stale lock can remain.
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/arith.h"
#include "base/sys.h"

// Maps with the given flags; 0 or an errno.
static int map_at(uint64_t address, uint64_t bytes, int protection, int flags, int file, uint64_t offset,
                  uint64_t* out) {
  void* got = mmap(tide__pointer(address), bytes, protection, flags, file, (off_t)offset);
  if (got == MAP_FAILED) return errno;
  *out = tide__address(got);
  return 0;
}

#define NOTHING_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

// Reserves more than needed and unmaps both ends, to get a range at a multiple of `alignment`.
static int reserve_aligned(uint64_t bytes, uint64_t alignment, uint64_t* out) {
  if (alignment <= tide__sys_page_bytes()) return map_at(0, bytes, PROT_NONE, NOTHING_FLAGS, -1, 0, out);
  uint64_t wide = 0;
  uint64_t begin = 0;
  if (!tide__add(bytes, alignment, &wide)) return ENOMEM;
  const int error = map_at(0, wide, PROT_NONE, NOTHING_FLAGS, -1, 0, &begin);
  if (error != 0) return error;
  const uint64_t first = (begin + alignment - 1) & ~(alignment - 1);
  if (first > begin) (void)munmap(tide__pointer(begin), first - begin);
  const uint64_t rest = begin + wide - (first + bytes);
  if (rest > 0) (void)munmap(tide__pointer(first + bytes), rest);
  *out = first;
  return 0;
}

int tide__sys_reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t* out) {
  if (hint != 0 && tide__is_aligned(hint, alignment)) {
    if (map_at(hint, bytes, PROT_NONE, NOTHING_FLAGS | MAP_FIXED_NOREPLACE, -1, 0, out) == 0) {
      if (*out == hint) return 0;
      (void)munmap(tide__pointer(*out),
                   bytes);  // a kernel before 4.17 ignores the flag and places it elsewhere
    }
  }
  return reserve_aligned(bytes, alignment, out);
}

int tide__sys_release(uint64_t address, uint64_t bytes) {
  return munmap(tide__pointer(address), bytes) == 0 ? 0 : errno;
}

int tide__sys_map_file(uint64_t address, uint64_t bytes, int file, uint64_t offset) {
  uint64_t got = 0;
  return map_at(address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file, offset, &got);
}

int tide__sys_map_nothing(uint64_t address, uint64_t bytes) {
  uint64_t got = 0;
  return map_at(address, bytes, PROT_NONE, NOTHING_FLAGS | MAP_FIXED, -1, 0, &got);
}

int tide__sys_map_private(uint64_t bytes, uint64_t* out) {
  return map_at(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, out);
}

int tide__sys_map_sparse(uint64_t bytes, uint64_t alignment, uint64_t* out) {
  const int error = reserve_aligned(bytes, alignment, out);
  if (error != 0) return error;
  if (mprotect(tide__pointer(*out), bytes, PROT_READ | PROT_WRITE) == 0) return 0;
  const int refused = errno;
  (void)munmap(tide__pointer(*out), bytes);
  return refused;
}

// Other processes write here, and children of fork() have no part in it.
int tide__sys_map_shared(int file, uint64_t bytes, bool can_write, uint64_t address, uint64_t* out) {
  const int protection = can_write ? PROT_READ | PROT_WRITE : PROT_READ;
  const int flags = MAP_SHARED | (address != 0 ? MAP_FIXED : 0);
  const int error = map_at(address, bytes, protection, flags, file, 0, out);
  if (error == 0) (void)madvise(tide__pointer(*out), bytes, MADV_DONTFORK);
  return error;
}

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24  // of Linux 5.18
#endif

// MADV_DONTNEED refuses locked pages. The program may have locked all of its memory, ours included.
int tide__sys_purge(uint64_t address, uint64_t bytes) {
  if (madvise(tide__pointer(address), bytes, MADV_DONTNEED) == 0) return 0;
  return errno == EINVAL && madvise(tide__pointer(address), bytes, MADV_DONTNEED_LOCKED) == 0 ? 0 : errno;
}

void tide__sys_ask_huge_pages(uint64_t address, uint64_t bytes) {
  (void)madvise(tide__pointer(address), bytes, MADV_HUGEPAGE);
}

void tide__sys_share_with_children(uint64_t address, uint64_t bytes, bool is_shared) {
  (void)madvise(tide__pointer(address), bytes, is_shared ? MADV_DOFORK : MADV_DONTFORK);
}

// ---------------------------------------------------------------------------------------------------
// Touching pages

// The system clears a page at its first use, one page for each thread at a time. Threads take the next unit
// from a counter, so that one that has to wait for a processor delays the others little. Units are whole huge
// pages, because two threads that touch the same one would both clear it.
#define TOUCH_UNIT ((uint64_t)8 << 20)
enum { TOUCH_THREADS = 16, TOUCH_THREADS_MOST = 128 };

typedef struct touch_work {
  uint64_t address;
  uint64_t bytes;
  uint64_t page_bytes;
  tide__atomic_u64 done;  // bytes that threads have taken
} touch_work;

static void* touch_run(void* argument) {
  touch_work* const work = argument;
  for (;;) {
    const uint64_t begin = tide__add_relaxed(&work->done, TOUCH_UNIT);
    if (begin >= work->bytes) return NULL;
    const uint64_t end = tide__min(begin + TOUCH_UNIT, work->bytes);
    for (uint64_t at = begin; at < end; at += work->page_bytes) {
      *(volatile char*)tide__pointer(work->address + at) = 0;
    }
  }
}

uint32_t tide__sys_touch_threads(uint64_t bytes, uint32_t most) {
  const uint64_t wanted = most != 0 ? tide__min(most, TOUCH_THREADS_MOST) : TOUCH_THREADS;
  const uint64_t units = bytes / TOUCH_UNIT + (bytes % TOUCH_UNIT != 0 ? 1 : 0);
  return (uint32_t)tide__max(1, tide__min(tide__min(wanted, tide__sys_usable_processors()), units));
}

// If no thread can be started, the calling one does all the work.
void tide__sys_touch(uint64_t address, uint64_t bytes, uint32_t most_threads) {
  touch_work work = { .address = address, .bytes = bytes, .page_bytes = tide__sys_page_bytes() };
  pthread_t threads[TOUCH_THREADS_MOST];
  const uint32_t wanted = tide__sys_touch_threads(bytes, most_threads) - 1;
  uint32_t count = 0;
  while (count < wanted && tide__sys_thread_start(&threads[count], touch_run, &work) == 0) count++;
  (void)touch_run(&work);
  while (count > 0) (void)pthread_join(threads[--count], NULL);
}

bool tide__sys_has_address_limit(void) {
  struct rlimit limit;
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

int tide__sys_protect(uint64_t address, uint64_t bytes, bool can_read, bool can_write) {
  const int protection = (can_read ? PROT_READ : PROT_NONE) | (can_write ? PROT_WRITE : PROT_NONE);
  return mprotect(tide__pointer(address), bytes, protection) == 0 ? 0 : errno;
}

bool tide__sys_is_mapped(uint64_t address, uint64_t bytes) {
  unsigned char present[512];
  const uint64_t page = tide__sys_page_bytes();
  const uint64_t end = address + bytes;
  for (uint64_t at = address & ~(page - 1); at < end; at += page * sizeof present) {
    if (mincore(tide__pointer(at), tide__min(end - at, page * sizeof present), present) != 0) return false;
  }
  return true;
}

// Lets the system copy bytes inside this process: for an invalid address it returns an error instead of a
// signal. If the system forbids these calls, the callers check at least whether the pages are mapped.
static int bytes_move(uint64_t ours, uint64_t any, uint64_t bytes, bool is_write) {
  for (uint64_t done = 0; done < bytes;) {
    const struct iovec here = { tide__pointer(ours + done), bytes - done };
    const struct iovec there = { tide__pointer(any + done), bytes - done };
    const ssize_t moved = is_write ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
                                   : process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    if (moved < 0) return errno;
    if (moved == 0) return EFAULT;
    done += (uint64_t)moved;
  }
  return 0;
}

static bool is_forbidden(int error) { return error == ENOSYS || error == EPERM; }

int tide__sys_read_any(void* destination, uint64_t source, uint64_t bytes) {
  const int error = bytes_move(tide__address(destination), source, bytes, false);
  if (!is_forbidden(error)) return error;
  if (!tide__sys_is_mapped(source, bytes)) return EFAULT;
  memcpy(destination, tide__pointer(source), bytes);
  return 0;
}

int tide__sys_write_any(uint64_t destination, const void* source, uint64_t bytes) {
  const int error = bytes_move(tide__address(source), destination, bytes, true);
  if (!is_forbidden(error)) return error;
  if (!tide__sys_is_mapped(destination, bytes)) return EFAULT;
  memcpy(tide__pointer(destination), source, bytes);
  return 0;
}

int tide__sys_lock_pages(uint64_t address, uint64_t bytes) {
  return mlock(tide__pointer(address), bytes) == 0 ? 0 : errno;
}

void tide__sys_unlock_pages(uint64_t address, uint64_t bytes) {
  (void)munlock(tide__pointer(address), bytes);
}

int tide__sys_file_new(const char* name, int* out) {
  *out = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  return *out >= 0 ? 0 : errno;
}

// F_SEAL_SEAL prevents more seals, which could keep the owner from growing or writing the file.
int tide__sys_file_seal(int file) {
  return fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) == 0 ? 0 : errno;
}

bool tide__sys_file_is_sealed(int file) {
  const int seals = fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

static bool is_above_limit(uint64_t bytes) {
  struct rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur;
}

int tide__sys_file_grow(int file, uint64_t bytes) {
  if (is_above_limit(bytes)) return EFBIG;
  return ftruncate(file, (off_t)bytes) == 0 ? 0 : errno;
}

int tide__sys_file_fill(int file, uint64_t bytes) {
  return is_above_limit(bytes) ? EFBIG : posix_fallocate(file, 0, (off_t)bytes);
}

int tide__sys_file_punch(int file, uint64_t offset, uint64_t bytes) {
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  return fallocate(file, mode, (off_t)offset, (off_t)bytes) == 0 ? 0 : errno;
}

int tide__sys_file_reopen(int process, int file, int* out) {
  char path[64];
  (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", process, file);
  *out = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  return *out >= 0 ? 0 : errno;
}

int tide__sys_file_duplicate(int file, int* out) {
  *out = fcntl(file, F_DUPFD_CLOEXEC, 0);
  return *out >= 0 ? 0 : errno;
}

int tide__sys_file_replace(int next, int old) { return dup3(next, old, O_CLOEXEC) >= 0 ? 0 : errno; }

int tide__sys_file_fetch(int process, int file, int* out) {
  const int there = (int)syscall(SYS_pidfd_open, process, 0);
  if (there < 0) return errno;
  *out = (int)syscall(SYS_pidfd_getfd, there, file, 0);
  const int error = *out >= 0 ? 0 : errno;
  (void)close(there);
  return error;
}

int tide__sys_file_seek(int file, uint64_t position) {
  return lseek(file, (off_t)position, SEEK_SET) >= 0 ? 0 : errno;
}

int tide__sys_file_position(int file, uint64_t* out) {
  const off_t position = lseek(file, 0, SEEK_CUR);
  if (position < 0) return errno;
  *out = (uint64_t)position;
  return 0;
}

void tide__sys_file_close(int file) { (void)close(file); }

int tide__sys_file_put(int file, const void* data, size_t bytes) {
  for (const char* at = data; bytes > 0;) {
    const ssize_t count = write(file, at, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    at += count;
    bytes -= (size_t)count;
  }
  return 0;
}

int tide__sys_file_bytes(int file, uint64_t* out) {
  struct stat about;
  if (fstat(file, &about) != 0) return errno;
  if (!S_ISREG(about.st_mode)) return EINVAL;
  *out = (uint64_t)about.st_size;
  return 0;
}

int tide__sys_file_read(int file, uint64_t offset, uint64_t* out) {
  const ssize_t got = pread(file, out, sizeof *out, (off_t)offset);
  if (got < 0) return errno;
  return got == (ssize_t)sizeof *out ? 0 : EIO;
}

int tide__sys_file_write(int file, uint64_t offset, uint64_t value) {
  const ssize_t got = pwrite(file, &value, sizeof value, (off_t)offset);
  if (got < 0) return errno;
  return got == (ssize_t)sizeof value ? 0 : EIO;
}

static struct flock lock_of(short type, uint64_t offset, uint64_t bytes) {
  return (
      struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = (off_t)bytes };
}

int tide__sys_file_lock(int file, uint64_t offset, uint64_t bytes) {
  struct flock lock = lock_of(F_RDLCK, offset, bytes);
  return fcntl(file, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

int tide__sys_file_own(int file, uint64_t offset, uint64_t bytes) {
  struct flock lock = lock_of(F_WRLCK, offset, bytes);
  return fcntl(file, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

void tide__sys_file_disown(int file, uint64_t offset, uint64_t bytes) {
  struct flock lock = lock_of(F_UNLCK, offset, bytes);
  (void)fcntl(file, F_OFD_SETLK, &lock);
}

bool tide__sys_file_has_lock_over(int file, uint64_t offset, uint64_t bytes) {
  struct flock lock = lock_of(F_WRLCK, offset, bytes);
  if (fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return false;
  const uint64_t begin = (uint64_t)lock.l_start;
  return begin <= offset && (lock.l_len == 0 || begin + (uint64_t)lock.l_len >= offset + bytes);
}

bool tide__sys_file_is_locked(int file, uint64_t offset, uint64_t bytes) {
  struct flock lock = lock_of(F_WRLCK, offset, bytes);
  return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}
