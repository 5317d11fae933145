// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes what an allocator takes from another process: shares of raw segments, shares with parts, and offers
// of both kinds. The first byte says which; three bytes each that follow say where it is damaged, and how. A
// second process of this target made all of them, and lives as long as this one.
//
// What is refused changes nothing. What is opened is memory that the machine knows, all of it, and is closed
// again. Another import, which is open all the time, stays as it is. Without damage everything is opened.
#define T_THREADS
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bytes.h"
#include "tidemark/device.h"

#define MIB ((size_t)1 << 20)

enum { FUZZ_PARTS = 16, FUZZ_BYTES = 5 * 1024 * 1024, FUZZ_MARK = 0x5d };

// What the other process made.
typedef struct fuzz_goods {
  tide_share kept;
  tide_share raw;
  tide_offer raw_offer;
  uint64_t raw_offset;
  tide_offer parts_offer;
  uint64_t parts_offset;
} fuzz_goods;

// A share with its parts, as one range of bytes.
typedef struct fuzz_parcel {
  tide_share share;
  tide_physical_share parts[FUZZ_PARTS];
} fuzz_parcel;

static struct {
  tide_machine* machine;
  tide_device_cache* device;
  fuzz_goods goods;
  fuzz_parcel parcel;
  const uint8_t* kept;
} world;

static tide_device_cache* device_of(tide_machine* machine, uint32_t policy) {
  tide_device_cache* device = NULL;
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.policy = policy;
  FUZZ_REQUIRE(tide_device_new(machine, 0, &options, &device) == TIDE_OK);
  return device;
}

static tide_machine* machine_of(void) {
  tide_machine* machine = NULL;
  tide_host_options options = TIDE_HOST_OPTIONS_INIT;
  options.capacity = 256 * MIB;
  FUZZ_REQUIRE(tide_machine_new_host(&options, &machine) == TIDE_OK);
  return machine;
}

static void* memory_of(tide_device_cache* device) {
  tide_block block;
  FUZZ_REQUIRE(tide_device_alloc(device, NULL, FUZZ_BYTES, &block) == TIDE_OK);
  memset(block.address, FUZZ_MARK, FUZZ_BYTES);
  return block.address;
}

// ---------------------------------------------------------------------------------------------------
// The other process

static void goods_make(fuzz_goods* out) {
  tide_machine* const machine = machine_of();
  tide_device_cache* const torch = device_of(machine, TIDE_POLICY_TORCH);
  tide_device_cache* const tide = device_of(machine, TIDE_POLICY_TIDE);
  memset(out, 0, sizeof *out);
  (void)memory_of(torch);  // so that the others do not begin where their segment does
  void* const raw = memory_of(torch);
  out->raw = out->kept = (tide_share)TIDE_SHARE_INIT;
  FUZZ_REQUIRE(tide_device_share(torch, raw, &out->raw, NULL, 0) == TIDE_OK);
  FUZZ_REQUIRE(tide_device_offer(torch, raw, &out->raw_offer, &out->raw_offset) == TIDE_OK);
  tide_device_set_caching(torch, false);
  FUZZ_REQUIRE(tide_device_share(torch, memory_of(torch), &out->kept, NULL, 0) == TIDE_OK);
  FUZZ_REQUIRE(tide_device_offer(tide, memory_of(tide), &out->parts_offer, &out->parts_offset) == TIDE_OK);
}

// Makes everything, and leaves when the socket closes.
static void exporter_run(int to) {
  static fuzz_goods goods;
  char end = 0;
  goods_make(&goods);
  FUZZ_REQUIRE(write(to, &goods, sizeof goods) == (ssize_t)sizeof goods);
  while (read(to, &end, 1) > 0) {}
  _exit(0);
}

static void world_open(void) {
  int ends[2];
  void* kept = NULL;
  FUZZ_REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const pid_t child = fork();
  FUZZ_REQUIRE(child >= 0);
  if (child == 0) {
    (void)close(ends[0]);
    exporter_run(ends[1]);
  }
  (void)close(ends[1]);
  FUZZ_REQUIRE(recv(ends[0], &world.goods, sizeof world.goods, MSG_WAITALL) == (ssize_t)sizeof world.goods);
  world.machine = machine_of();
  world.device = device_of(world.machine, TIDE_POLICY_TIDE);
  FUZZ_REQUIRE(tide_device_import(world.device, &world.goods.kept, NULL, &kept) == TIDE_OK);
  world.kept = kept;
  world.parcel.share = (tide_share)TIDE_SHARE_INIT;
  FUZZ_REQUIRE(tide_device_share(world.device, memory_of(world.device), &world.parcel.share,
                                 world.parcel.parts, FUZZ_PARTS) == TIDE_OK);
}

// ---------------------------------------------------------------------------------------------------
// Inputs

// Changes bytes as the input says; returns whether any is another now.
static bool damage(fuzz_bytes* input, void* what, size_t bytes) {
  unsigned char before[1024];
  unsigned char* const at = what;
  FUZZ_REQUIRE(bytes <= sizeof before);
  memcpy(before, at, bytes);
  while (input->left >= 3) {
    const size_t high = fuzz_take(input);
    const size_t low = fuzz_take(input);
    at[(high << 8 | low) % bytes] ^= fuzz_take(input);
  }
  return memcmp(before, at, bytes) != 0;
}

static bool is_known(const void* address) {
  tide_pointer_info info = TIDE_POINTER_INFO_INIT;
  FUZZ_REQUIRE(tide_machine_pointer_info(world.machine, address, &info) == TIDE_OK);
  return info.kind == TIDE_MEMORY_IMPORTED || info.kind == TIDE_MEMORY_MAPPED;
}

// What was opened is there from the first byte to the last.
static void expect_memory(void* address, uint64_t bytes) {
  const volatile uint8_t* const at = address;
  FUZZ_REQUIRE(is_known(address) && is_known((uint8_t*)address + bytes - 1));
  (void)at[0];
  (void)at[bytes - 1];
  FUZZ_REQUIRE(tide_device_unimport(world.device, address) == TIDE_OK);
}

static void expect_answer(tide_status status, bool is_damaged, void* address, uint64_t bytes) {
  FUZZ_REQUIRE((status == TIDE_OK) == (address != NULL));
  FUZZ_REQUIRE(is_damaged || status == TIDE_OK);
  if (status == TIDE_OK) expect_memory(address, bytes);
  FUZZ_REQUIRE(is_known(world.kept) && world.kept[0] == FUZZ_MARK);
}

static void import_raw(fuzz_bytes* input, tide_share share) {
  void* address = NULL;
  const bool is_damaged = damage(input, &share, sizeof share);
  if (share.part_count != 0) return;  // no parts came with it: the caller sees that
  const tide_status status = tide_device_import(world.device, &share, NULL, &address);
  expect_answer(status, is_damaged, address, share.bytes);
}

static void import_parts(fuzz_bytes* input) {
  fuzz_parcel parcel = world.parcel;
  void* address = NULL;
  const bool is_damaged = damage(input, &parcel, sizeof parcel);
  if (parcel.share.part_count == 0 || parcel.share.part_count > world.parcel.share.part_count) return;
  const tide_status status = tide_device_import(world.device, &parcel.share, parcel.parts, &address);
  expect_answer(status, is_damaged, address, parcel.share.bytes);
}

static void accept_offer(fuzz_bytes* input, tide_offer offer) {
  void* address = NULL;
  const bool is_damaged = damage(input, &offer, sizeof offer);
  const tide_status status = tide_device_accept(world.device, &offer, &address);
  expect_answer(status, is_damaged, address, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz_bytes input = { data, bytes };
  if (world.machine == NULL) world_open();
  switch (fuzz_take(&input) % 5) {
    case 0: import_raw(&input, world.goods.raw); break;
    case 1: import_raw(&input, world.goods.kept); break;
    case 2: import_parts(&input); break;
    case 3: accept_offer(&input, world.goods.raw_offer); break;
    default: accept_offer(&input, world.goods.parts_offer); break;
  }
  return 0;
}
