// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Raw memory of this computer: alignment, fills to the last byte, huge pages, and what is refused.
#include "blocks.h"

static const char* const raw_flags[] = { "0", "1", "2", "4", "5", "6", NULL };

static uint32_t flags_of_variant(void) { return (uint32_t)atoi(t_variant()); }

static void raw_expect_refused(uint32_t flags, size_t bytes, size_t alignment, tide_status status) {
  const tide_memory memory = tide_memory_raw(flags);
  void* address = &address;
  T_STATUS(memory.alloc(&memory, bytes, alignment, &address), status);
  T_PTR_EQ(address, NULL);
}

static void expect_raw(const tide_memory* memory, uint32_t flags, size_t bytes, size_t alignment) {
  void* address = NULL;
  T_OK(memory->alloc(memory, bytes, alignment, &address));
  T_CHECK(address != NULL);
  T_EQ((uintptr_t)address % 64, 0);
  T_EQ((uintptr_t)address % alignment, 0);
  if (flags & TIDE_RAW_ZEROS) expect_zeros(address, bytes);
  if (flags & TIDE_RAW_JUNK) expect_junk(address, bytes);
  pattern_write(address, bytes, bytes);
  pattern_expect(address, bytes, bytes);
  T_OK(memory->release(memory, address));
}

// The second round gets the memory of the first, filled again.
T_TEST_OVER(test_memory_raw__fills_to_the_last_byte, raw_flags) {
  static const size_t sizes[] = { 1,    3,     7,      8,       9,       64,      100,     1001,   4096,
                                  4099, 65537, 100003, 2097151, 2097152, 2097153, 5000001, 6291456 };
  const uint32_t flags = flags_of_variant();
  const tide_memory memory = tide_memory_raw(flags);
  T_CHECK(memory.is_host);
  for (size_t round = 0; round < 2; round++) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) expect_raw(&memory, flags, sizes[i], 1);
  }
}

T_TEST_OVER(test_memory_raw__aligns, raw_flags) {
  const uint32_t flags = flags_of_variant();
  const tide_memory memory = tide_memory_raw(flags);
  for (size_t alignment = 1; alignment <= 8 * MIB; alignment *= 2) {
    expect_raw(&memory, flags, 1000, alignment);
    expect_raw(&memory, flags, 3000001, alignment);
  }
}

T_TEST_OVER(test_memory_raw__too_much_is_a_wrong_argument, raw_flags) {
  raw_expect_refused(flags_of_variant(), (size_t)PTRDIFF_MAX + 1, 64, TIDE_ERR_ARGUMENT);
  raw_expect_refused(flags_of_variant(), SIZE_MAX, 64, TIDE_ERR_ARGUMENT);
}

T_TEST_OVER(test_memory_raw__what_there_is_not_is_named, raw_flags) {
  if (T_HAS_SANITIZER) t_skip("a sanitizer ends the program there");
  raw_expect_refused(flags_of_variant(), (size_t)PTRDIFF_MAX - 4096, 64, TIDE_ERR_NO_MEMORY);
  T_STR_HAS(tide_last_error()->text, "9223372036854771711");
}

T_TEST(test_memory_raw__both_fills_are_refused) {
  raw_expect_refused(TIDE_RAW_ZEROS | TIDE_RAW_JUNK, 100, 64, TIDE_ERR_ARGUMENT);
  raw_expect_refused(TIDE_RAW_ZEROS | TIDE_RAW_JUNK | TIDE_RAW_HUGE_PAGES, 4 * MIB, 64, TIDE_ERR_ARGUMENT);
}

T_TEST(test_memory_raw__flags_that_are_none_are_refused) {
  for (uint32_t bit = 8; bit != 0; bit <<= 1) raw_expect_refused(bit, 100, 64, TIDE_ERR_ARGUMENT);
  raw_expect_refused(UINT32_MAX, 100, 64, TIDE_ERR_ARGUMENT);
}

// Memory begins at a huge page, so that neither its head nor its tail is lost.
T_TEST(test_memory_raw__huge_pages_begin_at_huge_pages) {
  const tide_memory memory = tide_memory_raw(TIDE_RAW_HUGE_PAGES);
  void* small[64];
  void* large = NULL;
  void* larger = NULL;

  T_OK(memory.alloc(&memory, 2 * MIB, 64, &large));
  T_OK(memory.alloc(&memory, 5 * MIB + 1, 64, &larger));
  T_EQ((uintptr_t)large % (2 * MIB), 0);
  T_EQ((uintptr_t)larger % (2 * MIB), 0);

  // Smaller blocks are not aligned to pages, which would waste memory.
  size_t on_pages = 0;
  for (size_t i = 0; i < 64; i++) {
    T_OK(memory.alloc(&memory, 1000, 64, &small[i]));
    on_pages += (uintptr_t)small[i] % 4096 == 0;
    memset(small[i], 1, 1000);
  }
  T_LT(on_pages, 64);
  for (size_t i = 0; i < 64; i++) T_OK(memory.release(&memory, small[i]));

  T_OK(memory.release(&memory, larger));
  T_OK(memory.release(&memory, large));
}

// Where the system gives huge pages on request, writing one byte makes the whole page resident.
T_TEST(test_memory_raw__huge_pages_are_huge) {
  if (T_HAS_SANITIZER) t_skip("a sanitizer decides on pages itself");
  const tide_memory memory = tide_memory_raw(TIDE_RAW_HUGE_PAGES);
  FILE* const file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
  char text[100] = "";
  if (file == NULL || fgets(text, sizeof text, file) == NULL) t_skip("there are no huge pages here");
  (void)fclose(file);
  if (strstr(text, "[never]") != NULL) t_skip("huge pages are off");
  void* address = NULL;
  T_OK(memory.alloc(&memory, 16 * MIB, 64, &address));

  size_t whole = 0;
  for (size_t i = 0; i < 8; i++) {
    uint8_t* const page = (uint8_t*)address + i * 2 * MIB;
    page[0] = 1;
    whole += resident_bytes(page, 2 * MIB) == 2 * MIB;
  }

  T_OK(memory.release(&memory, address));
  if (whole == 0) t_skip("the system had no huge page to give");
}
