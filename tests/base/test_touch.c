// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Touching new pages with several threads, and the memory that the system can still give.
#define T_THREADS
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>

#include "base/sys.h"
#include "t.h"

#define MIB ((uint64_t)1 << 20)

static uint8_t* map_new(uint64_t bytes) {
  uint64_t address = 0;
  T_EQ(tide__sys_map_sparse(bytes, 2 * MIB, &address), 0);
  T_EQ(address % (2 * MIB), 0);
  return (uint8_t*)(uintptr_t)address;
}

static uint64_t count_present(const uint8_t* address, uint64_t bytes) {
  static unsigned char present[64 * 256];
  const uint64_t page = tide__sys_page_bytes();
  uint64_t count = 0;
  T_LE(bytes / page, sizeof present);
  T_EQ(mincore((void*)(uintptr_t)address, bytes, present), 0);
  for (uint64_t i = 0; i < bytes / page; ++i) count += present[i] & 1;
  return count;
}

T_TEST(test_touch__every_page_is_there) {
  static const uint64_t sizes[] = { 1, 2 * MIB, 8 * MIB, 8 * MIB + 1, 21 * MIB };
  static const uint32_t threads[] = { 0, 1, 2, 128 };
  const uint64_t page = tide__sys_page_bytes();
  for (size_t i = 0; i < 5; ++i) {
    for (size_t k = 0; k < 4; ++k) {
      const uint64_t bytes = (sizes[i] + page - 1) / page * page;
      uint8_t* const memory = map_new(bytes + page);
      T_EQ(count_present(memory, bytes), 0);

      tide__sys_touch((uint64_t)(uintptr_t)memory, bytes, threads[k]);

      T_EQ(count_present(memory, bytes), bytes / page);
      T_EQ(count_present(memory + bytes, page), 0);
      T_EQ(tide__sys_release((uint64_t)(uintptr_t)memory, bytes + page), 0);
    }
  }
}

T_TEST(test_touch__small_ranges_need_no_thread) {
  T_EQ(tide__sys_touch_threads(0, 0), 1);
  T_EQ(tide__sys_touch_threads(1, 16), 1);
  T_EQ(tide__sys_touch_threads(8 * MIB, 16), 1);
  T_LE(tide__sys_touch_threads(8 * MIB + 1, 16), 2);
  T_EQ(tide__sys_touch_threads(1024 * MIB, 1), 1);
}

T_TEST(test_touch__no_more_threads_than_processors) {
  const uint32_t usable = tide__sys_usable_processors();
  T_LE(1, usable);
  T_LE(usable, tide__sys_processors());
  T_LE(tide__sys_touch_threads(UINT64_MAX, 0), usable < 16 ? usable : 16);
  T_LE(tide__sys_touch_threads(UINT64_MAX, UINT32_MAX), usable < 128 ? usable : 128);
  T_EQ(tide__sys_touch_threads(UINT64_MAX, 2), usable < 2 ? usable : 2);

  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET((size_t)sched_getcpu(), &one);
  T_EQ(sched_setaffinity(0, sizeof one, &one), 0);

  T_EQ(tide__sys_usable_processors(), 1);
  T_EQ(tide__sys_touch_threads(UINT64_MAX, 0), 1);
}

static uint64_t address_bytes(void) {
  uint64_t pages = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  T_CHECK(file != NULL);
  T_EQ(fscanf(file, "%" SCNu64, &pages), 1);
  (void)fclose(file);
  return pages * tide__sys_page_bytes();
}

// Without addresses for the stack of a thread, the calling one does all the work.
T_TEST(test_touch__works_where_no_thread_can_be_started) {
  if (T_HAS_SANITIZER) t_skip("a sanitizer needs addresses of its own");
  uint8_t* const memory = map_new(16 * MIB);
  const uint64_t most = address_bytes() + MIB;
  const struct rlimit limit = { most, most };
  pthread_t thread;
  T_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  T_NE(tide__sys_thread_start(&thread, NULL, NULL), 0);

  tide__sys_touch((uint64_t)(uintptr_t)memory, 16 * MIB, 2);

  T_EQ(count_present(memory, 16 * MIB), 16 * MIB / tide__sys_page_bytes());
}

static uint64_t mem_total(void) {
  static char text[4096];
  const int file = open("/proc/meminfo", O_RDONLY);
  T_LE(0, file);
  T_LT(0, read(file, text, sizeof text - 1));
  (void)close(file);
  uint64_t kib = 0;
  T_EQ(sscanf(text, "MemTotal: %" SCNu64, &kib), 1);
  return kib * 1024;
}

T_TEST(test_touch__the_system_has_some_memory_left_and_not_more_than_all) {
  const uint64_t left = tide__sys_available_bytes();
  T_LT(MIB, left);
  T_LE(left, mem_total());
}
