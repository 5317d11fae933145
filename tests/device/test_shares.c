// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory of an allocator in another process, and on another device. A second process, the importer, has a
// machine and an allocator of its own, and answers questions over a socket.
#define T_THREADS
#include "device/devices.h"
#include "process.h"

#define PARTS_MAX 64
#define BYTES (3 * MIB)
#define ROW_STEP (256 * KIB)

// ---------------------------------------------------------------------------------------------------
// Messages

typedef enum verb {
  VERB_OPEN,      // make a machine, `name`, and an allocator of the policy `number`
  VERB_IMPORT,    // open `share`; it is looked at from now on
  VERB_UNIMPORT,  // close what was opened last
  VERB_FILL,      // write the byte `number` everywhere
  VERB_CHECK,     // is the byte `number` everywhere? answers `number`: 1 or 0
  VERB_ROW,       // is it a row from the byte `number` on, see paint_row()? likewise
  VERB_OPENED     // how many raw segments were opened: `number`
} verb;

typedef struct message {
  uint32_t verb;
  uint32_t status;  // a tide_status; in answers only
  uint64_t number;
  char name[8];
  tide_share share;
  tide_physical_share parts[PARTS_MAX];
} message;

typedef union control {
  struct cmsghdr header;  // for its alignment
  char bytes[CMSG_SPACE(PARTS_MAX * sizeof(int))];
} control;

static void parts_close(const tide_share* share, const tide_physical_share* parts) {
  for (size_t i = 0; i < share->part_count; ++i) (void)close(parts[i].descriptor);
}

// Sends a message with the descriptors of its parts.
static bool message_send(int to, message* out) {
  control c = { .bytes = { 0 } };
  int descriptors[PARTS_MAX];
  struct iovec part = { out, sizeof *out };
  struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };
  const size_t count = out->share.part_count;
  for (size_t i = 0; i < count; ++i) descriptors[i] = out->parts[i].descriptor;
  if (count > 0) {
    packet.msg_control = &c;
    packet.msg_controllen = CMSG_SPACE(count * sizeof(int));
    struct cmsghdr* const header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
  }
  return sendmsg(to, &packet, MSG_NOSIGNAL) == (ssize_t)sizeof *out;
}

static bool message_receive(int from, message* in) {
  control c = { .bytes = { 0 } };
  int descriptors[PARTS_MAX];
  struct iovec part = { in, sizeof *in };
  struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &c };
  packet.msg_controllen = sizeof c;
  if (recvmsg(from, &packet, 0) != (ssize_t)sizeof *in) return false;
  const struct cmsghdr* const header = CMSG_FIRSTHDR(&packet);
  if (header == NULL) return true;
  memcpy(descriptors, CMSG_DATA(header), in->share.part_count * sizeof(int));
  for (size_t i = 0; i < in->share.part_count; ++i) in->parts[i].descriptor = descriptors[i];
  return true;
}

// ---------------------------------------------------------------------------------------------------
// The importer

typedef struct importer_state {
  tide_machine* m;
  tide_device_cache* d;
  void* address;
  size_t bytes;
} importer_state;

static tide_status importer_open(importer_state* s, const message* in) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.policy = (uint32_t)in->number;
  const tide_status status = machine_new(in->name, NULL, &s->m);
  return status == TIDE_OK ? tide_device_new(s->m, 0, &options, &s->d) : status;
}

static tide_status importer_import(importer_state* s, const message* in) {
  const tide_status status = tide_device_import(s->d, &in->share, in->parts, &s->address);
  s->bytes = (size_t)in->share.bytes;
  parts_close(&in->share, in->parts);
  return status;
}

// Is there `value`, and one more each `step` bytes?
static bool is_row(tide_machine* m, const void* address, size_t bytes, uint8_t value, size_t step) {
  T_CHECK(bytes != 0);
  uint8_t* const copy = malloc(bytes);
  bool is_so = copy != NULL;
  device_read(m, 0, address, copy, bytes);
  for (size_t at = 0, own = 0; is_so && at < bytes; at += own, ++value) {
    own = bytes - at < step ? bytes - at : step;
    is_so = copy[at] == value && memcmp(copy + at, copy + at + 1, own - 1) == 0;
  }
  free(copy);
  return is_so;
}

static bool importer_check(importer_state* s, uint64_t value, size_t step) {
  return is_row(s->m, s->address, s->bytes, (uint8_t)value, step);
}

static tide_status importer_answer(importer_state* s, message* in) {
  switch ((verb)in->verb) {
    case VERB_OPEN: return importer_open(s, in);
    case VERB_IMPORT: return importer_import(s, in);
    case VERB_UNIMPORT: return tide_device_unimport(s->d, s->address);
    case VERB_FILL: device_fill(s->m, 0, s->address, (uint8_t)in->number, s->bytes); return TIDE_OK;
    case VERB_CHECK: in->number = importer_check(s, in->number, SIZE_MAX); return TIDE_OK;
    case VERB_ROW: in->number = importer_check(s, in->number, ROW_STEP); return TIDE_OK;
    case VERB_OPENED: in->number = tide_machine_call_stats(s->m, TIDE_CALL_RAW_IMPORT).calls; return TIDE_OK;
  }
  return TIDE_ERR_MACHINE;
}

T_ROLE(importer_role) {
  const int to = atoi(argument);
  importer_state s = { NULL, NULL, NULL, 0 };
  message in = { .verb = VERB_OPEN };
  while (message_receive(to, &in)) {
    in.status = (uint32_t)importer_answer(&s, &in);
    in.share.part_count = 0;
    if (!message_send(to, &in)) break;
  }
  tide_device_free(s.d);
  tide_machine_free(s.m);
  (void)close(to);
}

typedef t_process importer;

static message ask_with(const importer* p, message question) {
  message answer = { .verb = VERB_OPEN };
  T_CHECK(message_send(p->socket, &question));
  T_CHECK(message_receive(p->socket, &answer));
  return answer;
}

static uint64_t ask(const importer* p, verb what, uint64_t number) {
  const message answer = ask_with(p, (message){ .verb = (uint32_t)what, .number = number });
  T_STATUS((tide_status)answer.status, TIDE_OK);
  return answer.number;
}

static importer importer_new(void) {
  importer p = t_process_new("importer_role");
  message question = { .verb = VERB_OPEN, .number = device_defaults().policy };
  (void)snprintf(question.name, sizeof question.name, "%s", machine_variant());
  T_STATUS((tide_status)ask_with(&p, question).status, TIDE_OK);
  return p;
}

static void importer_end(importer* p) { t_process_end(p); }

// Shares a block with the importer; the descriptors are closed here once they are sent.
static void share_with(tide_device_cache* d, const importer* p, tide_block block) {
  message question = { .verb = VERB_IMPORT };
  question.share = (tide_share)TIDE_SHARE_INIT;
  T_OK(tide_device_share(d, block.address, &question.share, question.parts, PARTS_MAX));
  const message answer = ask_with(p, question);
  parts_close(&question.share, question.parts);
  T_STATUS((tide_status)answer.status, TIDE_OK);
}

static void need_raw_sharing(tide_machine* m) {
  if (!device_info(m, 0).has_raw_sharing) t_skip("no raw sharing");
}

static void need_physical_sharing(tide_machine* m, tide_device_cache* d) {
  if (!device_info(m, 0).has_physical_sharing) t_skip("no physical sharing");
  expand(m, d);
}

// For blocks of the default options.
static void need_sharing(tide_machine* m, tide_device_cache* d) {
  if (is_tide()) need_physical_sharing(m, d);
  else need_raw_sharing(m);
}

// A block whose memory cannot be taken for another's or be put together in another order.
static void paint_row(tide_machine* m, tide_block block, size_t bytes, uint8_t value) {
  for (size_t at = 0; at < bytes; at += ROW_STEP, ++value) {
    const size_t own = bytes - at < ROW_STEP ? bytes - at : ROW_STEP;
    device_fill(m, 0, bytes_of(block) + at, value, own);
  }
}

static void expect_row(tide_machine* m, tide_block block, size_t bytes, uint8_t value) {
  T_CHECK(is_row(m, block.address, bytes, value, ROW_STEP));
}

// The exporter and the importer see the same.
static void expect_shared_row(tide_machine* m, const importer* p, tide_block block, size_t bytes,
                              uint8_t value) {
  expect_row(m, block, bytes, value);
  T_EQ(ask(p, VERB_ROW, value), 1);
}

// ---------------------------------------------------------------------------------------------------
// Raw segments

static void expect_shared_between_others(tide_machine* m, tide_device_cache* d, size_t bytes) {
  need_sharing(m, d);
  importer p = importer_new();
  tide_block blocks[3];
  for (uint8_t i = 0; i < 3; ++i) {
    blocks[i] = take(d, NULL, bytes);
    device_fill(m, 0, bytes_of(blocks[i]), i, bytes);
  }

  share_with(d, &p, blocks[1]);

  T_EQ(ask(&p, VERB_CHECK, 1), 1);
  T_EQ(ask(&p, VERB_CHECK, 2), 0);
  (void)ask(&p, VERB_FILL, 0x42);
  for (uint8_t i = 0; i < 3; ++i) expect_filled(m, 0, bytes_of(blocks[i]), i == 1 ? 0x42 : i, bytes);
  importer_end(&p);
}

DEVICE_TEST(test_device__another_process_uses_a_shared_block_and_nothing_else) {
  expect_shared_between_others(m, d, BYTES);
}

DEVICE_TEST(test_device__another_process_uses_a_small_block_among_others) {
  expect_shared_between_others(m, d, 10 * KIB);
}

TORCH_TEST(test_device__blocks_of_one_segment_are_opened_once_and_closed_for_each_import) {
  need_raw_sharing(m);
  importer p = importer_new();
  for (uint8_t i = 1; i <= 2; ++i) {
    const tide_block block = take(d, NULL, BYTES);
    device_fill(m, 0, bytes_of(block), i, BYTES);
    share_with(d, &p, block);
    T_EQ(ask(&p, VERB_CHECK, i), 1);
  }

  T_EQ(ask(&p, VERB_OPENED, 0), 1);
  (void)ask(&p, VERB_UNIMPORT, 0);
  T_EQ(ask(&p, VERB_CHECK, 2), 1);  // the first import keeps it open
  (void)ask(&p, VERB_UNIMPORT, 0);
  const message answer = ask_with(&p, (message){ .verb = VERB_UNIMPORT });
  T_STATUS((tide_status)answer.status, TIDE_ERR_HANDLE);
  importer_end(&p);
}

// ---------------------------------------------------------------------------------------------------
// Expandable segments

DEVICE_TEST(test_device__another_process_uses_a_block_of_an_expandable_segment) {
  need_physical_sharing(m, d);
  importer p = importer_new();
  (void)take(d, NULL, 15 * MIB);
  const tide_block block = take(d, NULL, 12 * MIB);  // from 15 to 27 MiB: in two handles
  device_fill(m, 0, bytes_of(block), 0x51, 12 * MIB);

  share_with(d, &p, block);

  T_EQ(ask(&p, VERB_CHECK, 0x51), 1);
  (void)ask(&p, VERB_FILL, 0x52);
  expect_filled(m, 0, bytes_of(block), 0x52, 12 * MIB);
  (void)ask(&p, VERB_UNIMPORT, 0);
  importer_end(&p);
}

TORCH_TEST(test_device__only_the_handles_around_the_block_are_shared) {
  need_physical_sharing(m, d);
  tide_share share = TIDE_SHARE_INIT;
  tide_physical_share parts[PARTS_MAX];
  (void)take(d, NULL, 25 * MIB);
  const tide_block block = take(d, NULL, 12 * MIB);  // from 25 to 37 MiB: in the second handle

  T_OK(tide_device_share(d, block.address, &share, parts, PARTS_MAX));

  T_EQ(share.part_count, 1);
  T_EQ(share.offset, 5 * MIB);
  T_EQ(share.bytes, 12 * MIB);
  T_EQ(parts[0].bytes, 20 * MIB);
  (void)close(parts[0].descriptor);
}

TORCH_TEST(test_device__too_little_room_for_parts_says_how_many_there_are) {
  need_physical_sharing(m, d);
  tide_share share = TIDE_SHARE_INIT;
  tide_physical_share part = { .descriptor = -5 };
  const size_t descriptors = t_count_descriptors();
  const tide_block block = take(d, NULL, 50 * MIB);

  T_STATUS(tide_device_share(d, block.address, &share, &part, 1), TIDE_ERR_LIMIT);

  T_EQ(share.part_count, 3);
  T_EQ(part.descriptor, -5);
  if (!is_cuda(m)) T_LE(t_count_descriptors(), descriptors + 1);  // the host's file of physical memory
}

DEVICE_TEST(test_device__expandable_memory_outlives_its_exporter_in_the_importer) {
  need_physical_sharing(m, d);
  importer p = importer_new();
  tide_device_cache* const other = device_new(m, 0, NULL);
  configure(other, "expandable_segments:True");
  const tide_block block = take(other, NULL, 12 * MIB);
  device_fill(m, 0, bytes_of(block), 0x61, 12 * MIB);
  share_with(other, &p, block);

  tide_device_free(other);

  T_EQ(ask(&p, VERB_CHECK, 0x61), 1);
  importer_end(&p);
}

DEVICE_TEST(test_device__an_import_reserves_only_what_is_shared) {
  need_physical_sharing(m, d);
  tide_device_cache* const other = device_new(m, 0, NULL);
  tide_fault fault = TIDE_FAULT_INIT;
  tide_share share = TIDE_SHARE_INIT;
  tide_physical_share parts[PARTS_MAX];
  void* address = NULL;
  const tide_block block = take(d, NULL, 12 * MIB);
  T_OK(tide_device_share(d, block.address, &share, parts, PARTS_MAX));
  fault.call = TIDE_CALL_ADDRESS_RESERVE;
  fault.byte_budget = 20 * MIB;
  fault.count = UINT64_MAX;
  T_OK(tide_machine_fault_add(m, &fault));

  T_OK(tide_device_import(other, &share, parts, &address));

  parts_close(&share, parts);
  device_fill(m, 0, address, 0x71, 12 * MIB);
  expect_filled(m, 0, bytes_of(block), 0x71, 12 * MIB);
  T_OK(tide_device_unimport(other, address));
  tide_device_free(other);
}

// ---------------------------------------------------------------------------------------------------
// Memory put together

#define TIDE_TEST(function) DEVICE_TEST_OVER(function, device_tide)

DEVICE_TEST(test_device__another_process_uses_a_block_of_a_private_pool) {
  need_sharing(m, d);
  importer p = importer_new();
  const tide_pool pool = pool_new(d, NULL);
  (void)take_in(d, pool, NULL, BYTES);
  const tide_block block = take_in(d, pool, NULL, BYTES);
  paint_row(m, block, BYTES, 5);

  share_with(d, &p, block);

  expect_shared_row(m, &p, block, BYTES, 5);
  importer_end(&p);
}

TIDE_TEST(test_tide__handles_of_different_sizes_are_shared) {
  need_physical_sharing(m, d);
  importer p = importer_new();
  message question = { .verb = VERB_IMPORT };
  (void)take(d, NULL, 3 * MIB);  // two handles of 2 MiB
  configure(d, "tide_least_handle_mb:4");
  const tide_block block = take(d, NULL, 9 * MIB);  // the last MiB of them, and two of 4 MiB
  paint_row(m, block, 9 * MIB, 7);

  question.share = (tide_share)TIDE_SHARE_INIT;
  T_OK(tide_device_share(d, block.address, &question.share, question.parts, PARTS_MAX));

  T_EQ(question.share.part_count, 3);
  T_EQ(question.share.offset, MIB);
  T_EQ(question.parts[0].bytes, 2 * MIB);
  T_EQ(question.parts[1].bytes, 4 * MIB);
  T_STATUS((tide_status)ask_with(&p, question).status, TIDE_OK);
  parts_close(&question.share, question.parts);
  expect_shared_row(m, &p, block, 9 * MIB, 7);
  (void)ask(&p, VERB_FILL, 8);
  expect_filled(m, 0, bytes_of(block), 8, 9 * MIB);
  (void)ask(&p, VERB_UNIMPORT, 0);
  importer_end(&p);
}

// A block of 8 MiB in two halves, with blocks before, between and behind, on another stream.
typedef struct patchwork {
  tide_block block;
  tide_block others[3];
} patchwork;

static patchwork patchwork_new(tide_machine* m, tide_device_cache* d, tide_stream stream) {
  patchwork w;
  tide_block gaps[2];
  give(d, take(d, NULL, 512));  // with two streams, releases leave marks
  for (size_t i = 0; i < 3; ++i) {
    w.others[i] = take(d, stream, BYTES);
    paint_row(m, w.others[i], BYTES, (uint8_t)(100 + i));
    if (i < 2) gaps[i] = take(d, stream, 4 * MIB);
  }
  for (size_t i = 0; i < 2; ++i) give(d, gaps[i]);
  const int64_t reserved = current(d, reserved_bytes);
  w.block = take(d, NULL, 8 * MIB);
  T_LE(current(d, reserved_bytes), reserved + 2 * (int64_t)MIB);
  paint_row(m, w.block, 8 * MIB, 50);
  return w;
}

static void patchwork_expect(tide_machine* m, const patchwork* w) {
  expect_row(m, w->block, 8 * MIB, 50);
  for (size_t i = 0; i < 3; ++i) expect_row(m, w->others[i], BYTES, (uint8_t)(100 + i));
}

TIDE_TEST(test_tide__a_stitched_block_is_shared) {
  need_physical_sharing(m, d);
  importer p = importer_new();
  const patchwork w = patchwork_new(m, d, side_new(m));

  share_with(d, &p, w.block);

  T_EQ(ask(&p, VERB_ROW, 50), 1);
  patchwork_expect(m, &w);
  (void)ask(&p, VERB_FILL, 9);
  expect_filled(m, 0, bytes_of(w.block), 9, 8 * MIB);
  for (size_t i = 0; i < 3; ++i) expect_row(m, w.others[i], BYTES, (uint8_t)(100 + i));
  importer_end(&p);
}

// Shares a block without an importer.
static void share_and_forget(tide_device_cache* d, tide_block block) {
  tide_share share = TIDE_SHARE_INIT;
  tide_physical_share parts[PARTS_MAX];
  T_OK(tide_device_share(d, block.address, &share, parts, PARTS_MAX));
  parts_close(&share, parts);
}

// Idle memory of two streams, a MiB each in a handle with a block of 3 MiB, of which a view can be made that
// begins behind the block of `a`; the limit allows nothing else.
typedef struct corner {
  tide_stream a;
  tide_stream b;
  tide_block block;
} corner;

static corner corner_new(tide_machine* m, tide_device_cache* d) {
  corner c = { .a = side_new(m), .b = side_new(m) };
  c.block = take(d, c.a, BYTES);
  const tide_block gap = take(d, c.b, MIB);
  (void)take(d, c.b, BYTES);
  give(d, gap);
  limit_to(d, (uint64_t)current(d, reserved_bytes));
  return c;
}

TIDE_TEST(test_tide__of_shared_memory_no_view_is_made) {
  need_physical_sharing(m, d);
  const corner c = corner_new(m, d);

  share_and_forget(d, c.block);

  expect_oom(d, c.b, 2 * MIB);
  (void)take(d, c.a, MIB);  // at home it serves
}

TIDE_TEST(test_tide__a_view_does_not_use_memory_that_was_shared_since) {
  need_physical_sharing(m, d);
  const corner c = corner_new(m, d);
  give(d, take(d, c.b, 2 * MIB));
  const tide_block again = take(d, c.b, 2 * MIB);
  give(d, again);

  share_and_forget(d, c.block);
  expect_oom(d, c.b, 2 * MIB);

  give(d, c.block);  // it is shared no more
  (void)take(d, c.a, 2 * MIB);
  (void)take(d, c.b, 2 * MIB);
}

TIDE_TEST(test_tide__a_share_that_fails_changes_nothing) {
  need_physical_sharing(m, d);
  const corner c = corner_new(m, d);
  tide_share share = TIDE_SHARE_INIT;
  tide_physical_share parts[PARTS_MAX];
  const size_t descriptors = t_count_descriptors();
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = TIDE_CALL_PHYSICAL_EXPORT;
  fault.skip = 1;

  T_OK(tide_machine_fault_add(m, &fault));
  T_STATUS(tide_device_share(d, c.block.address, &share, parts, PARTS_MAX), TIDE_ERR_NO_MEMORY);
  T_EQ(share.bytes, 0);
  T_STATUS(tide_device_share(d, c.block.address, &share, parts, 1), TIDE_ERR_LIMIT);
  T_EQ(share.part_count, 2);

  if (!is_cuda(m)) T_LE(t_count_descriptors(), descriptors + 1);  // the host's file of physical memory
  (void)take(d, c.b, 2 * MIB);
}

#define CROWD 12

// Random requests of two streams, mostly stitched, until some have failed.
static void crowd_press(tide_machine* m, tide_device_cache* d, const tide_stream streams[2], uint64_t seed) {
  tide_block blocks[CROWD] = { { NULL, 0 } };
  size_t bytes[CROWD] = { 0 };
  t_rng rng = t_rng_new(seed);
  for (size_t i = 0; i < 50; ++i) {
    const size_t slot = (size_t)t_rng_below(&rng, CROWD);
    if (blocks[slot].address != NULL) {
      expect_filled(m, 0, bytes_of(blocks[slot]), (uint8_t)slot, bytes[slot]);
      give(d, blocks[slot]);
      blocks[slot] = block_none;
      continue;
    }
    bytes[slot] = (size_t)(MIB + t_rng_below(&rng, 6 * MIB));
    if (tide_device_alloc(d, streams[i % 2], bytes[slot], &blocks[slot]) != TIDE_OK) continue;
    device_fill(m, 0, bytes_of(blocks[slot]), (uint8_t)slot, bytes[slot]);
  }
  for (size_t i = 0; i < CROWD; ++i) give(d, blocks[i]);
}

TIDE_TEST(test_tide__under_pressure_shared_memory_stays_as_it_is) {
  need_physical_sharing(m, d);
  importer p = importer_new();
  importer q = importer_new();
  const tide_stream streams[2] = { side_new(m), side_new(m) };
  const patchwork w = patchwork_new(m, d, streams[0]);
  const tide_block home = take(d, streams[1], 5 * MIB);
  paint_row(m, home, 5 * MIB, 20);
  share_with(d, &p, w.block);
  share_with(d, &q, home);
  limit_to(d, 44 * MIB);

  for (uint64_t i = 0; i < 2; ++i) {
    crowd_press(m, d, streams, i);
    T_EQ(ask(&p, VERB_ROW, 50), 1);
    expect_shared_row(m, &q, home, 5 * MIB, 20);
    patchwork_expect(m, &w);
    device_expect_valid(d);
  }

  (void)ask(&p, VERB_FILL, 1);
  (void)ask(&q, VERB_FILL, 2);
  expect_filled(m, 0, bytes_of(w.block), 1, 8 * MIB);
  expect_filled(m, 0, bytes_of(home), 2, 5 * MIB);
  importer_end(&p);
  importer_end(&q);
}

TIDE_TEST(test_tide__what_was_shared_and_given_back_stays_with_the_importer) {
  need_physical_sharing(m, d);
  importer p = importer_new();
  const tide_stream stream = side_new(m);
  const patchwork w = patchwork_new(m, d, stream);
  share_with(d, &p, w.block);
  stream_finish(m, 0, stream);

  give(d, w.block);
  for (size_t i = 0; i < 3; ++i) give(d, w.others[i]);

  expect_trimmed(d, 0);
  paint_row(m, take(d, NULL, 16 * MIB), 16 * MIB, 200);
  T_EQ(ask(&p, VERB_ROW, 50), 1);
  (void)ask(&p, VERB_UNIMPORT, 0);
  importer_end(&p);
}

// ---------------------------------------------------------------------------------------------------
// When something fails

static tide_status import_once(tide_device_cache* to, tide_device_cache* from, tide_block block) {
  tide_share share = TIDE_SHARE_INIT;
  tide_physical_share parts[PARTS_MAX];
  void* address = NULL;
  tide_status status = tide_device_share(from, block.address, &share, parts, PARTS_MAX);
  if (status != TIDE_OK) return status;
  status = tide_device_import(to, &share, parts, &address);
  parts_close(&share, parts);
  if (status != TIDE_OK) return status;
  status = tide_device_unimport(to, address);
  const tide_status first = status;
  for (size_t i = 0; i < 3 && status != TIDE_OK; ++i) status = tide_device_unimport(to, address);
  T_OK(status);
  return first;
}

// Breaks calls from `skip` on, up to `count`. True if one was hit.
static bool expect_unbroken(tide_machine* m, tide_device_cache* d, tide_block block, uint64_t skip,
                            uint64_t count) {
  const uint64_t ranges = reservations(m);
  const size_t descriptors = t_count_descriptors();
  const uint64_t before = tide_machine_call_stats(m, TIDE_CALL_ANY).failures;
  counting_heap records;
  counting_heap_init(&records, SIZE_MAX, false);
  tide_device_cache* const other = device_new(m, 0, &records.heap);
  tide_fault fault = TIDE_FAULT_INIT;
  fault.status = TIDE_ERR_MACHINE;
  fault.skip = skip;
  fault.count = count;
  T_OK(tide_machine_fault_add(m, &fault));
  const tide_status status = import_once(other, d, block);
  tide_machine_fault_clear(m);
  const bool is_hit = tide_machine_call_stats(m, TIDE_CALL_ANY).failures > before;
  T_CHECK(status == TIDE_OK || (is_hit && status == TIDE_ERR_MACHINE));

  T_OK(import_once(other, d, block));
  trim(other);
  T_EQ(reservations(m), ranges);
  tide_device_free(other);
  T_EQ(atomic_load(&records.outstanding), 0);
  T_EQ(t_count_descriptors(), descriptors);
  return is_hit;
}

DEVICE_TEST_OVER(test_device__no_fault_while_sharing_leaves_anything_behind, device_host) {
  need_physical_sharing(m, d);
  (void)take(d, NULL, 15 * MIB);
  const tide_block block = take(d, NULL, 12 * MIB);
  T_OK(import_once(d, d, block));

  for (uint64_t count = 1; count <= 3; ++count) {
    uint64_t skip = 0;
    while (expect_unbroken(m, d, block, skip, count)) ++skip;
    T_LE(5, skip);
  }
}

DEVICE_TEST_OVER(test_device__a_heap_that_refuses_an_import_loses_nothing, device_host) {
  need_physical_sharing(m, d);
  const tide_block block = take(d, NULL, 12 * MIB);
  T_OK(import_once(d, d, block));
  const uint64_t ranges = reservations(m);
  bool is_refused = true;
  for (size_t at = 0; is_refused; ++at) {
    counting_heap records;
    counting_heap_init(&records, SIZE_MAX, false);
    tide_device_cache* const other = device_new(m, 0, &records.heap);
    atomic_store(&records.fail_at, atomic_load(&records.allocs) + at);
    const tide_status status = import_once(other, d, block);
    is_refused = atomic_load(&records.has_failed);
    T_CHECK(status == TIDE_OK || (is_refused && status == TIDE_ERR_NO_MEMORY));
    tide_device_free(other);
    T_EQ(atomic_load(&records.outstanding), 0);
    T_EQ(reservations(m), ranges);
  }
}

// ---------------------------------------------------------------------------------------------------
// Threads

// Threads beside the one that shares, each with a stream of its own.
typedef struct busy {
  tide_device_cache* d;
  tide_stream stream;
  _Atomic(void*) address;  // of a block that comes and goes
  atomic_bool is_over;
  pthread_t thread;
} busy;

static void* busy_run(void* user) {
  busy* const b = user;
  for (uint64_t i = 0; !atomic_load(&b->is_over); ++i) {
    const tide_block gap = take(b->d, b->stream, i % 2 == 0 ? BYTES : 10 * KIB);
    atomic_store(&b->address, gap.address);
    const tide_block kept = take(b->d, b->stream, 2 * MIB);
    give(b->d, gap);
    give(b->d, take(b->d, b->stream, 7 * MIB));
    give(b->d, kept);
    if (i % 16 == 0) trim(b->d);
  }
  return NULL;
}

// A block that another thread releases meanwhile is shared or refused.
static void share_if_handed_out(tide_device_cache* d, const void* address) {
  tide_share share = TIDE_SHARE_INIT;
  tide_physical_share parts[PARTS_MAX];
  if (address == NULL) return;
  const tide_status status = tide_device_share(d, address, &share, parts, PARTS_MAX);
  if (status == TIDE_OK) parts_close(&share, parts);
  else T_STATUS(status, TIDE_ERR_HANDLE);
}

DEVICE_TEST_OVER(test_device__blocks_are_shared_while_others_come_and_go, device_host) {
  need_physical_sharing(m, d);
  busy crew[2] = { { .d = d }, { .d = d } };
  const tide_block block = take(d, NULL, 5 * MIB);
  paint_row(m, block, 5 * MIB, 1);
  for (size_t i = 0; i < 2; ++i) {
    crew[i].stream = side_new(m);
    t_thread_start(&crew[i].thread, busy_run, &crew[i]);
  }

  for (size_t i = 0; i < 50; ++i) {
    const tide_block young = take(d, NULL, 6 * MIB);
    T_OK(import_once(d, d, young));
    T_OK(import_once(d, d, block));
    give(d, young);
    for (size_t k = 0; k < 6; ++k) share_if_handed_out(d, atomic_load(&crew[k % 2].address));
  }

  for (size_t i = 0; i < 2; ++i) atomic_store(&crew[i].is_over, true);
  for (size_t i = 0; i < 2; ++i) t_thread_join(crew[i].thread);
  expect_row(m, block, 5 * MIB, 1);
}

// ---------------------------------------------------------------------------------------------------
// What is refused

static const char* const dry_names[] = { "dry", "dry tide", NULL };

DEVICE_TEST(test_device__only_memory_that_is_handed_out_is_shared) {
  tide_share share = TIDE_SHARE_INIT;
  const tide_block block = take(d, NULL, BYTES);
  give(d, block);

  T_STATUS(tide_device_share(d, block.address, &share, NULL, 0), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_unimport(d, block.address), TIDE_ERR_HANDLE);

  T_EQ(share.bytes, 0);
}

DEVICE_TEST_OVER(test_device__a_machine_that_cannot_share_says_so, dry_names) {
  tide_share share = TIDE_SHARE_INIT;
  const tide_block block = take(d, NULL, BYTES);

  T_STATUS(tide_device_share(d, block.address, &share, NULL, 0), TIDE_ERR_UNSUPPORTED);
}

DEVICE_TEST(test_device__imports_of_nonsense_are_refused) {
  tide_share share = { .size = 3 };
  void* address = (void*)1;

  T_STATUS(tide_device_import(d, &share, NULL, &address), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(address, NULL);
  share = (tide_share){ .size = sizeof share, .part_count = 2 };
  T_STATUS(tide_device_import(d, &share, NULL, &address), TIDE_ERR_ARGUMENT);
  tide_physical_share parts[2] = { { .descriptor = -1, .bytes = MIB }, { .descriptor = -1 } };
  T_STATUS(tide_device_import(d, &share, parts, &address), TIDE_ERR_ARGUMENT);  // an empty part
  parts[1].bytes = UINT64_MAX;
  T_STATUS(tide_device_import(d, &share, parts, &address), TIDE_ERR_ARGUMENT);  // more than there can be
  parts[1].bytes = MIB;
  share.offset = share.bytes = MIB + 1;
  T_STATUS(tide_device_import(d, &share, parts, &address), TIDE_ERR_ARGUMENT);  // outside
}

// ---------------------------------------------------------------------------------------------------
// Another device

static void need_peers(tide_machine* m) {
  bool is_possible = false;
  need_two_devices(m);
  T_OK(tide_machine_peer_query(m, 1, 0, &is_possible));
  if (!is_possible) t_skip("no peer access");
}

// Writes from a stream of device 1.
static tide_status fill_from_peer(tide_machine* m, tide_block block, uint8_t value, size_t bytes) {
  const tide_stream stream = stream_new(m, 1, TIDE_STREAM_NON_BLOCKING);
  const tide_status status = tide_machine_fill(m, 1, stream, block.address, value, bytes);
  if (status == TIDE_OK) stream_finish(m, 1, stream);
  return status;
}

static void expect_peer_uses(tide_machine* m, tide_device_cache* d) {
  need_peers(m);
  const tide_block old = take(d, NULL, BYTES);
  if (!is_cuda(m)) T_STATUS(fill_from_peer(m, old, 1, BYTES), TIDE_ERR_ACCESS);

  for (int i = 0; i < 2; ++i) T_OK(tide_device_enable_peer(d, 1));  // the second time without effect
  const tide_block young = take(d, NULL, 30 * MIB);

  T_OK(fill_from_peer(m, old, 2, BYTES));
  T_OK(fill_from_peer(m, young, 3, 30 * MIB));
  expect_filled(m, 0, bytes_of(old), 2, BYTES);
  expect_filled(m, 0, bytes_of(young), 3, 30 * MIB);
}

DEVICE_TEST(test_device__a_peer_uses_ordinary_segments_old_and_new) { expect_peer_uses(m, d); }

DEVICE_TEST(test_device__a_peer_uses_expandable_segments_old_and_new) {
  expand(m, d);
  expect_peer_uses(m, d);
}

// A block of 6 MiB where 2 MiB lie idle before what is in use: tide puts it together of those and new memory.
static tide_block take_beside(tide_device_cache* d) {
  const tide_block idle = take(d, NULL, 2 * MIB);
  (void)take(d, NULL, 2 * MIB);
  give(d, idle);
  return take(d, NULL, 6 * MIB);
}

DEVICE_TEST(test_device__a_peer_uses_blocks_put_together_old_and_new) {
  need_peers(m);
  const tide_block old = take_beside(d);

  T_OK(tide_device_enable_peer(d, 1));
  const tide_block young = take_beside(d);

  T_OK(fill_from_peer(m, old, 1, 6 * MIB));
  T_OK(fill_from_peer(m, young, 2, 6 * MIB));
  expect_filled(m, 0, bytes_of(old), 1, 6 * MIB);
  expect_filled(m, 0, bytes_of(young), 2, 6 * MIB);
  give(d, old);
  const tide_block again = take(d, NULL, 4 * MIB);  // tide: mapped in its place only now
  T_OK(fill_from_peer(m, again, 3, 4 * MIB));
  expect_filled(m, 0, bytes_of(again), 3, 4 * MIB);
}

DEVICE_TEST(test_device__device_0_uses_the_old_memory_of_another) {
  bool is_possible = false;
  need_two_devices(m);
  T_OK(tide_machine_peer_query(m, 0, 1, &is_possible));
  if (!is_possible) t_skip("no peer access");
  tide_device_cache* const other = device_new(m, 1, NULL);
  expand(m, other);
  const tide_block old = take(other, NULL, BYTES);

  T_OK(tide_device_enable_peer(other, 0));

  device_fill(m, 0, bytes_of(old), 1, BYTES);
  expect_filled(m, 1, bytes_of(old), 1, BYTES);
  tide_device_free(other);
}

DEVICE_TEST(test_device__a_device_is_no_peer_of_itself) {
  T_STATUS(tide_device_enable_peer(d, 0), TIDE_ERR_DEVICE);
  T_STATUS(tide_device_enable_peer(d, tide_machine_device_count(m)), TIDE_ERR_DEVICE);
  T_STATUS(tide_device_enable_peer(d, -1), TIDE_ERR_DEVICE);
}
