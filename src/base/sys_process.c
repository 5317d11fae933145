// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Time, threads, libraries, and properties of the computer.
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  (void)clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t tide__sys_clock_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
uint64_t tide__sys_coarse_clock_ns(void) { return clock_ns(CLOCK_MONOTONIC_COARSE); }
uint64_t tide__sys_thread_cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

void tide__sys_sleep_ns(uint64_t ns) {
  struct timespec rest = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
  while (nanosleep(&rest, &rest) == -1 && errno == EINTR) {}
}

// A process must register before it can use the private expedited barrier.
bool tide__sys_can_fence_all(void) {
  const int before = errno;
  const bool can = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  errno = before;
  return can;
}

void tide__sys_fence_all(void) {
  const int before = errno;
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0 && tide__sys_can_fence_all()) {
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  }
  errno = before;
}

void tide__sys_futex_wait(tide__atomic_u32* word, uint32_t value) {
  const int before = errno;
  (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
  errno = before;
}

void tide__sys_futex_wait_for(tide__atomic_u32* word, uint32_t value, uint64_t ns) {
  const int before = errno;
  const struct timespec rest = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
  (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &rest, NULL, 0);
  errno = before;
}

void tide__sys_futex_wake(tide__atomic_u32* word) {
  (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void tide__sys_shared_futex_wait_for(tide__atomic_u32* word, uint32_t value, uint64_t ns) {
  const int before = errno;
  const struct timespec rest = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
  (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &rest, NULL, 0);
  errno = before;
}

void tide__sys_shared_futex_wake(tide__atomic_u32* word) {
  const int before = errno;
  (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
  errno = before;
}

uint64_t tide__sys_page_bytes(void) {
  const long bytes = sysconf(_SC_PAGESIZE);
  return bytes > 0 ? (uint64_t)bytes : 4096;
}

uint64_t tide__sys_memory_bytes(void) {
  const long pages = sysconf(_SC_PHYS_PAGES);
  return pages > 0 ? (uint64_t)pages * tide__sys_page_bytes() : (uint64_t)1 << 30;
}

uint64_t tide__sys_memory_and_swap_bytes(void) {
  struct sysinfo info;
  if (sysinfo(&info) != 0) return tide__sys_memory_bytes();
  return ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
}

uint32_t tide__sys_processors(void) {
  const long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? (uint32_t)count : 1;
}

// The set has room for 8192 processors. If there are more, the system refuses to fill it.
uint32_t tide__sys_usable_processors(void) {
  cpu_set_t sets[8];
  const int before = errno;
  memset(sets, 0, sizeof sets);
  const bool is_known = sched_getaffinity(0, sizeof sets, sets) == 0;
  errno = before;
  const int count = is_known ? CPU_COUNT_S(sizeof sets, sets) : 0;
  return count > 0 ? (uint32_t)count : tide__sys_processors();
}

bool tide__sys_copies_locked_pages(void) {
  struct utsname name;
  char* end = NULL;
  if (uname(&name) != 0) return false;
  const unsigned long major = strtoul(name.release, &end, 10);
  const unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;
  return major > 5 || (major == 5 && minor >= 9);
}

int tide__sys_process(void) { return (int)getpid(); }

int tide__sys_thread_start(pthread_t* out, void* (*run)(void*), void* argument) {
  sigset_t all;
  sigset_t before;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(out, NULL, run, argument);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error;
}

void* tide__sys_library_open(const char* name, char* text, uint64_t text_bytes) {
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char* reason = dlerror();
    (void)snprintf(text, text_bytes, "%s", reason != NULL ? reason : "not found");
  }
  return library;
}

void* tide__sys_library_symbol(void* library, const char* name) { return dlsym(library, name); }
