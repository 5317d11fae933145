// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory shared between two processes, also when one of them is killed.
#define T_THREADS
#include "base/sys.h"
#include "machine/peer.h"

#define RAW_BYTES (4 * MIB)

static void need_raw_sharing(tide_machine* m) {
  if (!device_info(m, 0).has_raw_sharing) t_skip("no raw sharing");
}

static size_t need_physical_sharing(tide_machine* m) {
  if (!device_info(m, 0).has_physical_sharing) t_skip("no physical sharing");
  return granularity(m);
}

static void share_from(tide_machine* m, uint8_t* memory, peer_message* out) {
  *out = (peer_message){ .verb = PEER_RAW_IMPORT, .bytes = RAW_BYTES };
  T_OK(tide_machine_raw_export(m, 0, memory, &out->raw));
}

static void give_raw(tide_machine* m, uint8_t* memory, peer* to) {
  peer_message question;
  share_from(m, memory, &question);
  T_STATUS((tide_status)peer_ask_with(to, question).status, TIDE_OK);
}

static uint8_t* take_raw(tide_machine* m, const peer_message* share) {
  void* memory = NULL;
  T_OK(tide_machine_raw_import(m, 0, &share->raw, &memory));
  T_CHECK(memory != NULL);
  return memory;
}

// The kernel drops the locks of a killed process with a short delay.
static void expect_free_bytes_soon(tide_machine* m, size_t bytes) { T_WAIT(free_bytes(m, 0) == bytes); }

// ---------------------------------------------------------------------------------------------------
// Raw memory

MACHINE_TEST(test_raw_import__is_one_memory_in_two_processes) {
  need_raw_sharing(m);
  peer p = peer_new();
  uint8_t* const memory = raw_new(m, 0, RAW_BYTES);
  device_fill(m, 0, memory, 0x21, RAW_BYTES);

  give_raw(m, memory, &p);
  peer_expect(&p, 0x21);
  device_fill(m, 0, memory, 0x22, RAW_BYTES);
  peer_expect(&p, 0x22);
  (void)peer_ask(&p, PEER_FILL, 0x43);

  expect_filled(m, 0, memory, 0x43, RAW_BYTES);
  peer_end(&p);
}

MACHINE_TEST(test_raw_import__opens_memory_of_the_peer) {
  need_raw_sharing(m);
  peer p = peer_new();
  const peer_message share = peer_ask(&p, PEER_RAW_NEW, RAW_BYTES);
  (void)peer_ask(&p, PEER_FILL, 0x51);

  uint8_t* const memory = take_raw(m, &share);
  expect_filled(m, 0, memory, 0x51, RAW_BYTES);
  device_fill(m, 0, memory, 0x52, RAW_BYTES);
  peer_expect(&p, 0x52);

  T_OK(tide_machine_raw_unimport(m, memory));
  peer_end(&p);
}

MACHINE_TEST(test_raw_import__serves_two_importers) {
  need_raw_sharing(m);
  peer a = peer_new();
  peer b = peer_new();
  uint8_t* const memory = raw_new(m, 0, RAW_BYTES);
  give_raw(m, memory, &a);
  give_raw(m, memory, &b);

  (void)peer_ask(&a, PEER_FILL, 0x61);

  peer_expect(&b, 0x61);
  peer_end(&a);
  peer_expect(&b, 0x61);
  peer_end(&b);
}

HOST_TEST(test_raw_import__can_be_ended_and_repeated) {
  peer p = peer_new();
  const peer_message share = peer_ask(&p, PEER_RAW_NEW, RAW_BYTES);
  (void)peer_ask(&p, PEER_FILL, 0x71);
  uint8_t* const own = raw_new(m, 0, RAW_BYTES);

  for (int i = 0; i < 10; ++i) {
    uint8_t* const memory = take_raw(m, &share);
    expect_pointer(m, memory + RAW_BYTES - 1, TIDE_MEMORY_IMPORTED, 0, memory, RAW_BYTES);
    expect_filled(m, 0, memory, 0x71, 4096);
    T_STATUS(tide_machine_raw_unimport(m, own), TIDE_ERR_ARGUMENT);
    T_STATUS(tide_machine_raw_unimport(m, memory + 4096), TIDE_ERR_ARGUMENT);
    T_STATUS(tide_machine_raw_release(m, 0, memory), TIDE_ERR_ARGUMENT);
    T_OK(tide_machine_raw_unimport(m, memory));
    T_STATUS(tide_machine_raw_unimport(m, memory), TIDE_ERR_ARGUMENT);
    T_EQ(pointer_info(m, memory).kind, TIDE_MEMORY_UNKNOWN);
  }

  (void)take_raw(m, &share);  // tide_machine_free() ends it
  peer_end(&p);
}

MACHINE_TEST(test_raw_import__in_the_exporting_process_is_refused) {
  need_raw_sharing(m);
  uint8_t* const memory = raw_new(m, 0, RAW_BYTES);
  tide_raw_share share;
  void* out = &share;
  T_OK(tide_machine_raw_export(m, 0, memory, &share));

  T_STATUS(tide_machine_raw_import(m, 0, &share, &out), TIDE_ERR_STATE);

  T_PTR_EQ(out, NULL);
  T_STR_HAS(tide_last_error()->text, "raw_import");
}

HOST_TEST(test_raw_import__of_what_is_no_export_is_refused) {
  t_rng rng = t_rng_new(2);
  for (int i = 0; i < 50; ++i) {
    tide_raw_share share;
    void* out = NULL;
    for (size_t k = 0; k < sizeof share.bytes; ++k) {
      share.bytes[k] = i == 0 ? 0 : i == 1 ? 0xff : (unsigned char)t_rng_next(&rng);
    }

    T_STATUS(tide_machine_raw_import(m, 0, &share, &out), TIDE_ERR_ARGUMENT);
  }
}

HOST_TEST(test_raw_import__of_a_damaged_export_is_refused) {
  peer p = peer_new();
  const peer_message whole = peer_ask(&p, PEER_RAW_NEW, RAW_BYTES);
  for (size_t i = 0; i < sizeof whole.raw.bytes; ++i) {
    tide_raw_share share = whole.raw;
    void* out = NULL;
    share.bytes[i] ^= 0x41;

    const tide_status status = tide_machine_raw_import(m, 0, &share, &out);

    if (status != TIDE_ERR_ARGUMENT && status != TIDE_ERR_STATE) {
      T_FAIL("with byte %zu changed it is %s", i, tide_status_name(status));
    }
  }
  peer_end(&p);
}

// The exporter frees the memory, makes it anew, or is killed.
HOST_TEST(test_raw_import__after_the_memory_is_gone_is_refused) {
  for (int i = 0; i < 3; ++i) {
    peer p = peer_new();
    const peer_message share = peer_ask(&p, PEER_RAW_NEW, RAW_BYTES);
    void* out = NULL;
    if (i < 2) (void)peer_ask(&p, PEER_RAW_RELEASE, 0);
    if (i == 1) (void)peer_ask(&p, PEER_RAW_NEW, RAW_BYTES);
    if (i == 2) peer_kill(&p);

    T_STATUS(tide_machine_raw_import(m, 0, &share.raw, &out), TIDE_ERR_STATE);

    if (i < 2) peer_end(&p);
  }
}

HOST_TEST(test_raw_import__outlives_the_exporter) {
  peer p = peer_new();
  const peer_message share = peer_ask(&p, PEER_RAW_NEW, RAW_BYTES);
  (void)peer_ask(&p, PEER_FILL, 0x81);
  uint8_t* const memory = take_raw(m, &share);

  peer_kill(&p);

  expect_filled(m, 0, memory, 0x81, RAW_BYTES);
  T_OK(tide_machine_raw_unimport(m, memory));
}

HOST_TEST(test_raw_release__while_a_peer_has_the_memory_keeps_it_alive) {
  peer p = peer_new();
  uint8_t* const memory = raw_new(m, 0, RAW_BYTES);
  device_fill(m, 0, memory, 0x91, RAW_BYTES);
  give_raw(m, memory, &p);

  T_OK(tide_machine_raw_release(m, 0, memory));
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - RAW_BYTES);
  uint8_t* const next = raw_new(m, 0, RAW_BYTES);
  device_fill(m, 0, next, 0x92, RAW_BYTES);
  T_OK(tide_machine_raw_release(m, 0, next));

  peer_expect(&p, 0x91);
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - RAW_BYTES);
  (void)peer_ask(&p, PEER_RAW_UNIMPORT, 0);
  expect_free_bytes_soon(m, MACHINE_CAPACITY);
  peer_end(&p);
}

// The importer is killed after the release, or before it.
HOST_TEST(test_raw_release__of_a_killed_importer_gives_the_memory_back) {
  for (int i = 0; i < 2; ++i) {
    peer p = peer_new();
    uint8_t* const memory = raw_new(m, 0, RAW_BYTES);
    give_raw(m, memory, &p);
    if (i == 0) {
      peer_kill(&p);
      device_fill(m, 0, memory, 0xa1, RAW_BYTES);
      expect_filled(m, 0, memory, 0xa1, RAW_BYTES);
    }

    T_OK(tide_machine_raw_release(m, 0, memory));
    if (i == 1) {
      T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - RAW_BYTES);
      peer_kill(&p);
    }

    expect_free_bytes_soon(m, MACHINE_CAPACITY);
  }
}

// Without an importer, an export keeps no memory alive.
HOST_TEST(test_raw_export__takes_the_beginning_of_a_block_alone) {
  uint8_t* const memory = raw_new(m, 0, RAW_BYTES);
  uint8_t* const pinned = pinned_new(m, 4096);
  tide_raw_share share;

  T_STATUS(tide_machine_raw_export(m, 0, memory + 4096, &share), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_raw_export(m, 0, pinned, &share), TIDE_ERR_ARGUMENT);
  T_OK(tide_machine_raw_export(m, 0, memory, &share));

  T_OK(tide_machine_raw_release(m, 0, memory));
  expect_free_bytes_soon(m, MACHINE_CAPACITY);
}

EMULATED_TEST(test_share__works_exactly_where_the_device_says_so) {
  const tide_device_info info = device_info(m, 0);
  const size_t unit = granularity(m);
  uint8_t* const memory = raw_new(m, 0, RAW_BYTES);
  tide_physical physical = NULL;
  tide_raw_share raw;
  tide_physical_share share;
  T_OK(tide_machine_physical_new(m, 0, unit, TIDE_PHYSICAL_SHAREABLE, &physical));

  const tide_status by_raw = tide_machine_raw_export(m, 0, memory, &raw);
  const tide_status by_physical = tide_machine_physical_export(m, physical, &share);

  T_EQ(by_raw, info.has_raw_sharing ? TIDE_OK : TIDE_ERR_UNSUPPORTED);
  T_EQ(by_physical, info.has_physical_sharing ? TIDE_OK : TIDE_ERR_UNSUPPORTED);
  if (by_physical == TIDE_OK) (void)close(share.descriptor);
}

// ---------------------------------------------------------------------------------------------------
// Physical memory

// Physical memory that is mapped here and at the peer.
typedef struct both {
  tide_physical physical;
  uint8_t* memory;
  size_t bytes;
} both;

static both both_new(tide_machine* m, size_t bytes) {
  both b = { NULL, reserve(m, 0, bytes), bytes };
  T_OK(tide_machine_physical_new(m, 0, bytes, TIDE_PHYSICAL_SHAREABLE, &b.physical));
  T_OK(tide_machine_map(m, b.memory, b.physical));
  T_OK(tide_machine_set_access(m, b.memory, bytes, 0, TIDE_ACCESS_READ_WRITE));
  return b;
}

static void give_physical(tide_machine* m, const both* b, peer* to) {
  peer_message question = { .verb = PEER_PHYSICAL_IMPORT };
  T_OK(tide_machine_physical_export(m, b->physical, &question.physical));
  T_EQ(question.physical.bytes, b->bytes);
  T_STATUS((tide_status)peer_ask_with(to, question).status, TIDE_OK);
  T_EQ(close(question.physical.descriptor), 0);
}

// Maps memory that a peer exported, and frees the handle.
static uint8_t* take_physical(tide_machine* m, const peer_message* share) {
  const size_t bytes = (size_t)share->physical.bytes;
  uint8_t* const memory = reserve(m, 0, bytes);
  tide_physical physical = NULL;
  T_OK(tide_machine_physical_import(m, 0, &share->physical, &physical));
  T_EQ(close(share->physical.descriptor), 0);
  T_OK(tide_machine_map(m, memory, physical));
  T_OK(tide_machine_set_access(m, memory, bytes, 0, TIDE_ACCESS_READ_WRITE));
  T_OK(tide_machine_physical_free(m, physical));
  return memory;
}

MACHINE_TEST(test_physical_share__is_one_memory_in_two_processes) {
  const size_t unit = need_physical_sharing(m);
  peer p = peer_new();
  const both b = both_new(m, 2 * unit);
  device_fill(m, 0, b.memory, 0x15, b.bytes);

  give_physical(m, &b, &p);
  peer_expect(&p, 0x15);
  (void)peer_ask(&p, PEER_FILL, 0x16);
  expect_filled(m, 0, b.memory, 0x16, b.bytes);
  device_fill(m, 0, b.memory, 0x17, b.bytes);

  peer_expect(&p, 0x17);
  peer_end(&p);
}

// Memory of the peer stays usable when the peer ends its mapping and handle, or is killed.
MACHINE_TEST(test_physical_share__opens_memory_of_the_peer_and_outlives_it) {
  const size_t unit = need_physical_sharing(m);
  for (int i = 0; i < 3; ++i) {
    peer p = peer_new();
    const peer_message share = peer_ask(&p, PEER_PHYSICAL_NEW, unit);
    (void)peer_ask(&p, PEER_FILL, 0x25);
    if (i == 2) peer_kill(&p);

    uint8_t* const memory = take_physical(m, &share);
    if (i == 0) (void)peer_ask(&p, PEER_PHYSICAL_END, 0);
    if (i == 1) {
      device_fill(m, 0, memory, 0x25, unit);
      peer_expect(&p, 0x25);
      peer_kill(&p);
    }

    expect_filled(m, 0, memory, 0x25, unit);
    device_fill(m, 0, memory, 0x26, unit);
    expect_filled(m, 0, memory, 0x26, unit);
    if (i == 0) peer_end(&p);
  }
}

// The importer unmaps the memory, or is killed.
HOST_TEST(test_physical_share__keeps_the_memory_while_the_importer_has_it) {
  const size_t unit = need_physical_sharing(m);
  for (int i = 0; i < 2; ++i) {
    peer p = peer_new();
    const both b = both_new(m, unit);
    device_fill(m, 0, b.memory, 0x65, unit);
    give_physical(m, &b, &p);

    T_OK(tide_machine_unmap(m, b.memory, unit));
    T_OK(tide_machine_physical_free(m, b.physical));
    T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - unit);
    peer_expect(&p, 0x65);
    if (i == 0) (void)peer_ask(&p, PEER_PHYSICAL_END, 0);
    else peer_kill(&p);

    expect_free_bytes_soon(m, MACHINE_CAPACITY);
    if (i == 0) peer_end(&p);
  }
}

HOST_TEST(test_physical_share__is_not_moved_while_a_peer_writes) {
  const size_t unit = need_physical_sharing(m);
  peer p = peer_new();
  const both b = both_new(m, unit);
  give_physical(m, &b, &p);
  T_OK(tide_machine_unmap(m, b.memory, unit));
  T_OK(tide_machine_physical_free(m, b.physical));

  uint8_t* const fresh = raw_new(m, 0, MACHINE_CAPACITY - unit);
  device_fill(m, 0, fresh, 0x01, MACHINE_CAPACITY - unit);
  (void)peer_ask(&p, PEER_FILL, 0x75);

  for (size_t i = 0; i < MACHINE_CAPACITY - unit; i += 512) T_EQ(fresh[i], 0x01);
  peer_expect(&p, 0x75);
  peer_end(&p);
}

MACHINE_TEST(test_physical_export__needs_the_flag_and_gives_a_new_descriptor_each_time) {
  const size_t unit = need_physical_sharing(m);
  const tide_physical plain = physical_new(m, 0, unit);
  const both b = both_new(m, unit);
  tide_physical_share first;
  tide_physical_share second;
  const size_t before = t_count_descriptors();

  const tide_status status = tide_machine_physical_export(m, plain, &first);
  T_CHECK(status == TIDE_ERR_STATE || status == TIDE_ERR_ARGUMENT);
  T_STR_HAS(tide_last_error()->text, "physical_export");
  T_OK(tide_machine_physical_export(m, b.physical, &first));
  T_OK(tide_machine_physical_export(m, b.physical, &second));

  T_NE(first.descriptor, second.descriptor);
  T_EQ(close(first.descriptor), 0);
  T_EQ(close(second.descriptor), 0);
  T_LE(t_count_descriptors(), before + 1);
}

// Formats of others have no place for an offset.
MACHINE_TEST(test_physical_import__needs_only_the_descriptor_and_the_size) {
  const size_t unit = need_physical_sharing(m);
  const both others = both_new(m, unit);
  const both b = both_new(m, unit);
  tide_physical_share share;
  tide_physical imported = NULL;
  void* there = NULL;
  device_fill(m, 0, others.memory, 0x11, unit);
  device_fill(m, 0, b.memory, 0x37, unit);
  T_OK(tide_machine_physical_export(m, b.physical, &share));
  share.offset = 0;

  T_OK(tide_machine_physical_import(m, 0, &share, &imported));

  T_OK(tide_machine_address_reserve(m, 0, unit, 0, NULL, &there));
  T_OK(tide_machine_map(m, there, imported));
  T_OK(tide_machine_set_access(m, there, unit, 0, TIDE_ACCESS_READ_WRITE));
  expect_filled(m, 0, there, 0x37, unit);
  T_OK(tide_machine_unmap(m, there, unit));
  T_OK(tide_machine_address_release(m, there, unit));
  T_OK(tide_machine_physical_free(m, imported));
  T_EQ(close(share.descriptor), 0);
}

HOST_TEST(test_physical_import__of_what_is_no_export_is_refused) {
  const size_t unit = need_physical_sharing(m);
  int ends[2];
  T_EQ(pipe(ends), 0);
  const int file = open("/proc/self/exe", O_RDONLY);
  const int bad[] = { -1, 12345, ends[0], ends[1], file };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    const tide_physical_share share = { bad[i], 0, unit };
    tide_physical physical = (tide_physical)(uintptr_t)1;

    T_STATUS(tide_machine_physical_import(m, 0, &share, &physical), TIDE_ERR_ARGUMENT);

    T_PTR_EQ(physical, NULL);
  }
  (void)close(file);
  (void)close(ends[0]);
  (void)close(ends[1]);
}

HOST_TEST(test_physical_import__of_a_part_is_refused) {
  const size_t unit = need_physical_sharing(m);
  peer p = peer_new();
  const peer_message whole = peer_ask(&p, PEER_PHYSICAL_NEW, 2 * unit);
  const uint64_t sizes[] = { 0, 1, unit + 1, 1000 * unit, UINT64_MAX, UINT64_MAX - unit + 1 };
  tide_physical physical = NULL;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    tide_physical_share share = whole.physical;
    share.bytes = sizes[i];
    T_STATUS(tide_machine_physical_import(m, 0, &share, &physical), TIDE_ERR_ARGUMENT);
  }

  tide_physical_share far = whole.physical;
  far.offset = (uint64_t)1 << 50;
  T_STATUS(tide_machine_physical_import(m, 0, &far, &physical), TIDE_ERR_ARGUMENT);

  T_EQ(close(whole.physical.descriptor), 0);
  peer_end(&p);
}

HOST_TEST(test_share__many_rounds_leave_no_descriptor_and_no_memory) {
  const size_t unit = need_physical_sharing(m);
  peer p = peer_new();
  const peer_message raw = peer_ask(&p, PEER_RAW_NEW, RAW_BYTES);
  const peer_message share = peer_ask(&p, PEER_PHYSICAL_NEW, unit);
  (void)free_bytes(m, 0);
  const size_t before = t_count_descriptors();

  for (int i = 0; i < 20; ++i) {
    uint8_t* const memory = take_raw(m, &raw);
    tide_physical physical = NULL;
    T_OK(tide_machine_physical_import(m, 0, &share.physical, &physical));
    T_OK(tide_machine_physical_free(m, physical));
    T_OK(tide_machine_raw_unimport(m, memory));
  }

  T_LE(t_count_descriptors(), before + 2);
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
  T_EQ(close(share.physical.descriptor), 0);
  peer_end(&p);
}

// ---------------------------------------------------------------------------------------------------
// Hostile processes

// From linux/fcntl.h, which the C library's header hides here.
enum { ADD_SEALS = 1024 + 9, SEAL_SHRINK = 2, SEAL_GROW = 4 };

HOST_TEST(test_physical_export__nobody_can_make_the_memory_smaller) {
  const size_t unit = need_physical_sharing(m);
  tide_physical physical = NULL;
  tide_physical_share share;
  T_OK(tide_machine_physical_new(m, 0, unit, TIDE_PHYSICAL_SHAREABLE, &physical));
  T_OK(tide_machine_physical_export(m, physical, &share));

  T_EQ(ftruncate(share.descriptor, 0), -1);
  T_EQ(errno, EPERM);
  T_EQ(fcntl(share.descriptor, ADD_SEALS, SEAL_GROW), -1);  // which would keep the owner from growing

  (void)close(share.descriptor);
  T_OK(tide_machine_physical_free(m, physical));
}

// A memory file that looks like one of a machine, with a lock on the range, except that its owner may still
// shrink it.
HOST_TEST(test_physical_import__refuses_memory_that_its_owner_can_take_away) {
  const size_t unit = need_physical_sharing(m);
  tide_physical physical = NULL;
  tide_physical imported = NULL;
  tide_physical_share share;
  uint64_t mark = 0;
  int file = -1;
  T_OK(tide_machine_physical_new(m, 0, unit, TIDE_PHYSICAL_SHAREABLE, &physical));
  T_OK(tide_machine_physical_export(m, physical, &share));
  tide_physical_share forged = share;
  T_EQ(tide__sys_file_read(share.descriptor, 0, &mark), 0);
  T_EQ(tide__sys_file_new("forged", &file), 0);
  T_EQ(tide__sys_file_grow(file, share.offset + share.bytes), 0);
  T_EQ(tide__sys_file_write(file, 0, mark), 0);
  T_EQ(tide__sys_file_reopen(getpid(), file, &forged.descriptor), 0);
  T_EQ(tide__sys_file_lock(forged.descriptor, share.offset, share.bytes), 0);

  T_STATUS(tide_machine_physical_import(m, 0, &forged, &imported), TIDE_ERR_ARGUMENT);
  T_EQ(fcntl(file, ADD_SEALS, SEAL_SHRINK), 0);
  T_OK(tide_machine_physical_import(m, 0, &forged, &imported));

  T_OK(tide_machine_physical_free(m, imported));
  T_OK(tide_machine_physical_free(m, physical));
  (void)close(forged.descriptor);
  (void)close(share.descriptor);
  (void)close(file);
}
