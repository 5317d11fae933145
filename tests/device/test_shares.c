// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory of an allocator in another process, and on another device. A second process, in the role of the
// importer, has a machine and an allocator of its own, and answers questions over a socket.
#include <spawn.h>
#include <sys/socket.h>

#include "device/devices.h"

#define PARTS_MAX 4
#define BYTES (3 * MIB)

// ---------------------------------------------------------------------------------------------------
// Messages

typedef enum verb {
  VERB_OPEN,      // make a machine, `name`, and an allocator
  VERB_IMPORT,    // open `share`; it is looked at from now on
  VERB_UNIMPORT,  // close what was opened last
  VERB_FILL,      // write the byte `number` everywhere
  VERB_CHECK,     // is the byte `number` everywhere? answers `number`: 1 or 0
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
  tide_device* d;
  void* address;
  size_t bytes;
} importer_state;

static tide_status importer_open(importer_state* s, const message* in) {
  const tide_status status = machine_new(in->name, NULL, &s->m);
  return status == TIDE_OK ? tide_device_new(s->m, 0, NULL, &s->d) : status;
}

static tide_status importer_import(importer_state* s, const message* in) {
  const tide_status status = tide_device_import(s->d, &in->share, in->parts, &s->address);
  s->bytes = (size_t)in->share.bytes;
  for (size_t i = 0; i < in->share.part_count; ++i) (void)close(in->parts[i].descriptor);
  return status;
}

static uint64_t importer_check(importer_state* s, uint8_t value) {
  T_CHECK(s->bytes != 0);
  uint8_t* const copy = malloc(s->bytes);
  uint64_t is_so = copy != NULL;
  device_read(s->m, 0, s->address, copy, s->bytes);
  for (size_t i = 0; i < s->bytes; ++i) is_so = is_so && copy[i] == value;
  free(copy);
  return is_so;
}

static tide_status importer_answer(importer_state* s, message* in) {
  switch ((verb)in->verb) {
    case VERB_OPEN: return importer_open(s, in);
    case VERB_IMPORT: return importer_import(s, in);
    case VERB_UNIMPORT: return tide_device_unimport(s->d, s->address);
    case VERB_FILL: device_fill(s->m, 0, s->address, (uint8_t)in->number, s->bytes); return TIDE_OK;
    case VERB_CHECK: in->number = importer_check(s, (uint8_t)in->number); return TIDE_OK;
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

typedef struct importer {
  pid_t pid;
  int socket;
} importer;

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

extern char** environ;

static importer importer_new(void) {
  enum { THEIR_SOCKET = 3 };
  importer p = { 0, -1 };
  int ends[2];
  T_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  p.socket = ends[0];
  char program[] = "/proc/self/exe";
  char flag[] = "--role";
  char role[] = "importer_role";
  char socket_name[] = "3";
  char* const arguments[] = { program, flag, role, socket_name, NULL };
  posix_spawn_file_actions_t actions;
  T_EQ(posix_spawn_file_actions_init(&actions), 0);
  T_EQ(posix_spawn_file_actions_adddup2(&actions, ends[1], THEIR_SOCKET), 0);
  T_EQ(posix_spawn(&p.pid, program, &actions, NULL, arguments, environ), 0);
  T_EQ(posix_spawn_file_actions_destroy(&actions), 0);
  (void)close(ends[1]);
  message question = { .verb = VERB_OPEN };
  (void)snprintf(question.name, sizeof question.name, "%s", machine_variant());
  T_STATUS((tide_status)ask_with(&p, question).status, TIDE_OK);
  return p;
}

// Lets the importer free what it has and leave.
static void importer_end(importer* p) {
  int status = 0;
  (void)close(p->socket);
  T_EQ(waitpid(p->pid, &status, 0), p->pid);
  T_CHECK(WIFEXITED(status));
  T_EQ(WEXITSTATUS(status), 0);
}

// Shares a block with the importer; the descriptors are closed here once they are sent.
static void share_with(tide_device* d, const importer* p, tide_block block) {
  message question = { .verb = VERB_IMPORT };
  T_OK(tide_device_share(d, block.address, &question.share, question.parts, PARTS_MAX));
  const message answer = ask_with(p, question);
  for (size_t i = 0; i < question.share.part_count; ++i) (void)close(question.parts[i].descriptor);
  T_STATUS((tide_status)answer.status, TIDE_OK);
}

static void need_raw_sharing(tide_machine* m) {
  need_sharing();
  if (!device_info(m, 0).has_raw_sharing) t_skip("no raw sharing");
}

static void need_physical_sharing(tide_machine* m, tide_device* d) {
  need_sharing();
  if (!device_info(m, 0).has_physical_sharing) t_skip("no physical sharing");
  expand(m, d);
}

// ---------------------------------------------------------------------------------------------------
// Raw segments

DEVICE_TEST(test_device__another_process_reads_a_shared_block) {
  need_raw_sharing(m);
  importer p = importer_new();
  (void)take(d, NULL, 5 * MIB);
  const tide_block block = take(d, NULL, BYTES);  // in the middle of its segment
  device_fill(m, 0, bytes_of(block), 0x31, BYTES);

  share_with(d, &p, block);

  T_EQ(ask(&p, VERB_CHECK, 0x31), 1);
  T_EQ(ask(&p, VERB_CHECK, 0x32), 0);
  importer_end(&p);
}

DEVICE_TEST(test_device__another_process_writes_a_shared_block_and_nothing_else) {
  need_raw_sharing(m);
  importer p = importer_new();
  const tide_block before = take(d, NULL, BYTES);
  const tide_block block = take(d, NULL, BYTES);
  const tide_block behind = take(d, NULL, BYTES);
  device_fill(m, 0, bytes_of(before), 1, BYTES);
  device_fill(m, 0, bytes_of(behind), 3, BYTES);
  share_with(d, &p, block);

  (void)ask(&p, VERB_FILL, 0x42);

  expect_filled(m, 0, bytes_of(before), 1, BYTES);
  expect_filled(m, 0, bytes_of(block), 0x42, BYTES);
  expect_filled(m, 0, bytes_of(behind), 3, BYTES);
  importer_end(&p);
}

TORCH_TEST(test_device__blocks_of_one_segment_are_opened_once) {
  need_raw_sharing(m);
  importer p = importer_new();
  const tide_block a = take(d, NULL, BYTES);
  const tide_block b = take(d, NULL, BYTES);
  device_fill(m, 0, bytes_of(a), 1, BYTES);
  device_fill(m, 0, bytes_of(b), 2, BYTES);

  share_with(d, &p, a);
  T_EQ(ask(&p, VERB_CHECK, 1), 1);
  share_with(d, &p, b);
  T_EQ(ask(&p, VERB_CHECK, 2), 1);

  T_EQ(ask(&p, VERB_OPENED, 0), 1);
  (void)ask(&p, VERB_UNIMPORT, 0);
  T_EQ(ask(&p, VERB_CHECK, 2), 1);  // the first import keeps it open
  importer_end(&p);
}

TORCH_TEST(test_device__what_was_imported_can_be_closed_once_for_each_import) {
  need_raw_sharing(m);
  importer p = importer_new();
  const tide_block block = take(d, NULL, BYTES);
  share_with(d, &p, block);
  share_with(d, &p, block);

  (void)ask(&p, VERB_UNIMPORT, 0);
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
  tide_share share;
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
  tide_share share;
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
  tide_device* const other = device_new(m, 0, NULL);
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
  tide_device* const other = device_new(m, 0, NULL);
  tide_fault fault = TIDE_FAULT_INIT;
  tide_share share;
  tide_physical_share part;
  void* address = NULL;
  const tide_block block = take(d, NULL, 12 * MIB);
  T_OK(tide_device_share(d, block.address, &share, &part, 1));
  fault.call = TIDE_CALL_ADDRESS_RESERVE;
  fault.byte_budget = 20 * MIB;
  fault.count = UINT64_MAX;
  T_OK(tide_machine_fault_add(m, &fault));

  T_OK(tide_device_import(other, &share, &part, &address));

  (void)close(part.descriptor);
  device_fill(m, 0, address, 0x71, 12 * MIB);
  expect_filled(m, 0, bytes_of(block), 0x71, 12 * MIB);
  T_OK(tide_device_unimport(other, address));
  tide_device_free(other);
}

// ---------------------------------------------------------------------------------------------------
// What is refused

DEVICE_TEST(test_device__only_memory_that_is_handed_out_is_shared) {
  (void)m;
  tide_share share;
  const tide_block block = take(d, NULL, BYTES);
  give(d, block);

  T_STATUS(tide_device_share(d, block.address, &share, NULL, 0), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_unimport(d, block.address), TIDE_ERR_HANDLE);

  T_EQ(share.size, 0);
}

DEVICE_TEST_OVER(test_device__a_machine_that_cannot_share_says_so, machine_dry) {
  (void)m;
  tide_share share;
  const tide_block block = take(d, NULL, BYTES);

  T_STATUS(tide_device_share(d, block.address, &share, NULL, 0), TIDE_ERR_UNSUPPORTED);
}

DEVICE_TEST(test_device__imports_of_nonsense_are_refused) {
  (void)m;
  tide_share share = { .size = 3 };
  void* address = (void*)1;

  T_STATUS(tide_device_import(d, &share, NULL, &address), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(address, NULL);
  share = (tide_share){ .size = sizeof share, .part_count = 2 };
  T_STATUS(tide_device_import(d, &share, NULL, &address), TIDE_ERR_ARGUMENT);
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

DEVICE_TEST(test_device__a_peer_uses_ordinary_segments) {
  need_peers(m);
  const tide_block block = take(d, NULL, BYTES);
  if (!is_cuda(m)) T_STATUS(fill_from_peer(m, block, 1, BYTES), TIDE_ERR_ACCESS);

  T_OK(tide_device_enable_peer(d, 1));

  T_OK(fill_from_peer(m, block, 2, BYTES));
  expect_filled(m, 0, bytes_of(block), 2, BYTES);
  T_OK(fill_from_peer(m, take(d, NULL, 12 * MIB), 3, 12 * MIB));
}

DEVICE_TEST(test_device__a_peer_uses_expandable_segments_old_and_new) {
  need_peers(m);
  expand(m, d);
  const tide_block old = take(d, NULL, BYTES);

  T_OK(tide_device_enable_peer(d, 1));
  T_OK(tide_device_enable_peer(d, 1));  // a second time is nothing new
  const tide_block young = take(d, NULL, 30 * MIB);

  T_OK(fill_from_peer(m, old, 2, BYTES));
  T_OK(fill_from_peer(m, young, 3, 30 * MIB));
  expect_filled(m, 0, bytes_of(old), 2, BYTES);
  expect_filled(m, 0, bytes_of(young), 3, 30 * MIB);
}

// A block of 6 MiB where 2 MiB lie idle before what is in use: tide puts it together of those and new memory.
static tide_block take_beside(tide_device* d) {
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

DEVICE_TEST(test_device__a_device_is_no_peer_of_itself) {
  T_STATUS(tide_device_enable_peer(d, 0), TIDE_ERR_DEVICE);
  T_STATUS(tide_device_enable_peer(d, tide_machine_device_count(m)), TIDE_ERR_DEVICE);
  T_STATUS(tide_device_enable_peer(d, -1), TIDE_ERR_DEVICE);
}
