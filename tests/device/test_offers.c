// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sharing memory with another process as plain bytes. A second process receives an offer over a socket,
// accepts it, checks and writes the memory, and answers.
#define T_THREADS
#include <stddef.h>
#include <sys/un.h>

#include "device/devices.h"
#include "process.h"

#define BYTES (12 * MIB)

typedef struct question {
  char name[8];  // of the machine
  tide_offer offer;
  uint64_t offset;
  uint8_t expected;
  uint8_t written;
} question;

typedef struct answer {
  uint32_t status;
  bool is_as_expected;
} answer;

// ---------------------------------------------------------------------------------------------------
// Who accepts

static bool memory_has(tide_machine* m, const uint8_t* address, uint8_t value) {
  uint8_t* const copy = malloc(BYTES);
  bool is_so = copy != NULL;
  device_read(m, 0, address, copy, BYTES);
  is_so = is_so && copy[0] == value && memcmp(copy, copy + 1, BYTES - 1) == 0;
  free(copy);
  return is_so;
}

static answer accept_and_write(tide_device_cache* d, const question* q) {
  tide_machine* const m = tide_device_machine(d);
  void* base = NULL;
  const tide_status status = tide_device_accept(d, &q->offer, &base);
  if (status != TIDE_OK) return (answer){ (uint32_t)status, false };
  uint8_t* const block = (uint8_t*)base + q->offset;
  const bool is_so = memory_has(m, block, q->expected);
  device_fill(m, 0, block, q->written, BYTES);
  return (answer){ (uint32_t)tide_device_unimport(d, base), is_so };
}

T_ROLE(accepter_role) {
  const int to = atoi(argument);
  tide_machine* m = NULL;
  tide_device_cache* d = NULL;
  question q;
  while (recv(to, &q, sizeof q, 0) == (ssize_t)sizeof q) {
    if (m == NULL) T_OK(machine_new(q.name, NULL, &m));
    if (d == NULL) T_OK(tide_device_new(m, 0, NULL, &d));
    const answer a = accept_and_write(d, &q);
    if (send(to, &a, sizeof a, MSG_NOSIGNAL) != (ssize_t)sizeof a) break;
  }
  tide_device_free(d);
  tide_machine_free(m);
  (void)close(to);
}

static answer ask(const t_process* p, question q) {
  answer a = { 0, false };
  (void)snprintf(q.name, sizeof q.name, "%s", machine_variant());
  T_EQ(send(p->socket, &q, sizeof q, MSG_NOSIGNAL), (ssize_t)sizeof q);
  T_EQ(recv(p->socket, &a, sizeof a, 0), (ssize_t)sizeof a);
  return a;
}

// ---------------------------------------------------------------------------------------------------
// Who offers

static question offer_of(tide_device_cache* d, tide_block block) {
  question q = { .expected = 0 };
  T_OK(tide_device_offer(d, block.address, &q.offer, &q.offset));
  return q;
}

static void need_raw(tide_machine* m) {
  if (is_tide()) t_skip("the policy tide has no raw segments");
  if (!device_info(m, 0).has_raw_sharing) t_skip("no raw sharing");
}

// Blocks of the allocator are shared as parts.
static void need_parts(tide_machine* m, tide_device_cache* d) {
  tide_share share = TIDE_SHARE_INIT;
  if (!device_info(m, 0).has_physical_sharing) t_skip("no physical sharing");
  if (!is_tide()) expand(m, d);
  const tide_block block = take(d, NULL, BYTES);
  const tide_status status = tide_device_share(d, block.address, &share, NULL, 0);
  give(d, block);
  T_STATUS(status, TIDE_ERR_LIMIT);
}

static void expect_accepted(tide_machine* m, tide_device_cache* d) {
  t_process p = t_process_new("accepter_role");
  const tide_block block = take(d, NULL, BYTES);
  for (uint8_t round = 1; round < 4; ++round) {
    device_fill(m, 0, bytes_of(block), round, BYTES);
    question q = offer_of(d, block);
    q.expected = round;
    q.written = (uint8_t)(round + 100);

    const answer a = ask(&p, q);

    T_STATUS((tide_status)a.status, TIDE_OK);
    T_CHECK(a.is_as_expected);
    expect_filled(m, 0, bytes_of(block), (uint8_t)(round + 100), BYTES);
  }
  t_process_end(&p);
}

DEVICE_TEST(test_device__another_process_accepts_a_block_of_a_raw_segment) {
  need_raw(m);
  expect_accepted(m, d);
}

DEVICE_TEST(test_device__another_process_accepts_a_block_that_goes_as_descriptors) {
  need_parts(m, d);
  (void)take(d, NULL, 15 * MIB);
  expect_accepted(m, d);
}

DEVICE_TEST(test_device__many_parts_go_in_several_packets) {
  enum { PIECES = 100 };
  const size_t whole = 90 * MIB;
  if (!is_tide()) t_skip("the handles of expandable segments are few");
  need_parts(m, d);
  tide_block pieces[PIECES];
  tide_share share = TIDE_SHARE_INIT;
  void* there = NULL;
  tide_device_cache* const other = device_new(m, 0, NULL);
  // Of many small pieces every second: what is put together of them has a part for each.
  for (size_t i = 0; i < PIECES; ++i) pieces[i] = take(d, NULL, 2 * MIB);
  for (size_t i = 0; i < PIECES; i += 2) give(d, pieces[i]);
  const tide_block block = take(d, NULL, whole);
  T_STATUS(tide_device_share(d, block.address, &share, NULL, 0), TIDE_ERR_LIMIT);
  T_LT(32, share.part_count);
  device_fill(m, 0, bytes_of(block), 0x77, whole);
  const question q = offer_of(d, block);

  T_OK(tide_device_accept(other, &q.offer, &there));

  expect_filled(m, 0, (uint8_t*)there + q.offset, 0x77, whole);
  T_OK(tide_device_unimport(other, there));
  tide_device_free(other);
}

DEVICE_TEST(test_device__offers_of_one_block_are_equal) {
  need_parts(m, d);
  const tide_block block = take(d, NULL, BYTES);
  const tide_block second = take(d, NULL, BYTES);
  const question a = offer_of(d, block);
  const question b = offer_of(d, block);
  const question c = offer_of(d, second);

  T_EQ(memcmp(&a.offer, &b.offer, sizeof a.offer), 0);
  T_CHECK(memcmp(&a.offer, &c.offer, sizeof a.offer) != 0);
}

TORCH_TEST(test_device__offers_of_blocks_in_one_raw_segment_are_equal) {
  need_raw(m);
  const question a = offer_of(d, take(d, NULL, 3 * MIB));
  const question b = offer_of(d, take(d, NULL, 3 * MIB));

  T_EQ(memcmp(&a.offer, &b.offer, sizeof a.offer), 0);
  T_EQ(b.offset - a.offset, 3 * MIB);
}

DEVICE_TEST(test_device__offers_of_released_blocks_and_of_freed_allocators_are_refused) {
  need_parts(m, d);
  void* there = NULL;
  tide_device_cache* const other = device_new(m, 0, NULL);
  if (!is_tide()) configure(other, "expandable_segments:True");
  const tide_block block = take(other, NULL, BYTES);
  const question q = offer_of(other, block);
  give(other, block);

  T_STATUS(tide_device_accept(d, &q.offer, &there), TIDE_ERR_HANDLE);
  const tide_block again = take(other, NULL, BYTES);
  T_PTR_EQ(again.address, block.address);
  T_STATUS(tide_device_accept(d, &q.offer, &there), TIDE_ERR_HANDLE);
  const question last = offer_of(other, again);
  tide_device_free(other);
  T_STATUS(tide_device_accept(d, &last.offer, &there), TIDE_ERR_STATE);

  T_PTR_EQ(there, NULL);
}

DEVICE_TEST(test_device__what_is_no_offer_is_refused) {
  tide_offer offer;
  uint64_t offset = 7;
  void* there = &offer;
  memset(&offer, 0, sizeof offer);
  T_STATUS(tide_device_accept(d, &offer, &there), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(there, NULL);
  memset(&offer, 0xff, sizeof offer);
  T_STATUS(tide_device_accept(d, &offer, &there), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_accept(d, NULL, &there), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_offer(d, &offer, &offer, &offset), TIDE_ERR_HANDLE);
  T_EQ(offset, 0);
  T_STATUS(tide_device_offer(d, &offer, NULL, &offset), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_offer(NULL, &offer, &offer, &offset), TIDE_ERR_ARGUMENT);
}

// ---------------------------------------------------------------------------------------------------
// Answers that are not to be believed

// What an answer to a question for an offer is: see offer.c.
typedef struct forged_answer {
  uint32_t status;
  uint32_t reserved;
  tide_share share;
} forged_answer;

typedef struct forger {
  int listener;
  forged_answer answer;
  size_t answer_bytes;
  bool has_part;  // a packet with one part follows, with this many descriptors
  size_t descriptor_count;
  tide_physical_share part;
} forger;

enum { FORGED_FILES = 200 };

static void forger_send_part(const forger* f, int client) {
  union {
    struct cmsghdr header;  // for its alignment
    char bytes[CMSG_SPACE(FORGED_FILES * sizeof(int))];
  } control = { .bytes = { 0 } };
  int files[FORGED_FILES];
  tide_physical_share part = f->part;
  struct iovec iov = { &part, sizeof part };
  struct msghdr packet = { .msg_iov = &iov, .msg_iovlen = 1 };
  for (size_t i = 0; i < f->descriptor_count; ++i) files[i] = f->part.descriptor;
  if (f->descriptor_count > 0) {
    packet.msg_control = &control;
    packet.msg_controllen = CMSG_SPACE(f->descriptor_count * sizeof(int));
    struct cmsghdr* const header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(f->descriptor_count * sizeof(int));
    memcpy(CMSG_DATA(header), files, f->descriptor_count * sizeof(int));
  }
  T_EQ(sendmsg(client, &packet, MSG_NOSIGNAL), (ssize_t)sizeof part);
}

// Answers one question.
static void* forger_serve(void* user) {
  const forger* const f = user;
  char words[256];
  const int client = accept(f->listener, NULL, NULL);
  T_LE(0, client);
  T_LT(0, recv(client, words, sizeof words, 0));
  T_EQ(send(client, &f->answer, f->answer_bytes, MSG_NOSIGNAL), (ssize_t)f->answer_bytes);
  if (f->has_part) forger_send_part(f, client);
  (void)close(client);
  return NULL;
}

// Makes an offer name a socket of the forger's.
static void forger_listen(forger* f, tide_offer* offer) {
  static int count;
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  const int length = snprintf(address.sun_path + 1, 40, "tidemark-forged-%d-%d", (int)getpid(), count++);
  const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
  f->listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  T_EQ(bind(f->listener, (const struct sockaddr*)&address, bytes), 0);
  T_EQ(listen(f->listener, 1), 0);
  size_t at = 0;
  while (at + 40 < sizeof offer->bytes && memcmp(offer->bytes + at, "tidemark-", 9) != 0) ++at;
  T_EQ(memcmp(offer->bytes + at, "tidemark-", 9), 0);
  memcpy(offer->bytes + at, address.sun_path + 1, (size_t)length + 1);
}

static void expect_forgery_refused(tide_device_cache* d, forger f, tide_status wanted) {
  pthread_t thread;
  void* there = &f;
  question q = offer_of(d, take(d, NULL, BYTES));
  const size_t listening = t_count_descriptors();
  forger_listen(&f, &q.offer);
  t_thread_start(&thread, forger_serve, &f);

  T_STATUS(tide_device_accept(d, &q.offer, &there), wanted);

  t_thread_join(thread);
  (void)close(f.listener);
  T_PTR_EQ(there, NULL);
  T_EQ(t_count_descriptors(), listening);
}

static forger forger_of(uint32_t part_count, uint64_t offset, uint64_t bytes) {
  forger f = { .answer_bytes = sizeof f.answer };
  f.answer.share = (tide_share){ sizeof f.answer.share, part_count, offset, bytes, { { 0 } }, 0 };
  return f;
}

DEVICE_TEST(test_device__forged_answers_to_offers_are_refused) {
  need_parts(m, d);
  forger status = forger_of(1, 0, 1);
  forger cut = forger_of(1, 0, 1);
  forger wide = forger_of(1, 0, 1);
  status.answer.status = 77777;
  cut.answer_bytes = 1;
  wide.answer.share.size = 104;
  wide.has_part = true;
  wide.descriptor_count = 1;
  wide.part = (tide_physical_share){ STDERR_FILENO, 0, 2 * MIB };

  expect_forgery_refused(d, forger_of(UINT32_MAX, 0, 1), TIDE_ERR_STATE);  // and none comes
  expect_forgery_refused(d, forger_of(0, 0, 1), TIDE_ERR_STATE);
  expect_forgery_refused(d, status, TIDE_ERR_STATE);
  expect_forgery_refused(d, cut, TIDE_ERR_STATE);
  expect_forgery_refused(d, wide, TIDE_ERR_ARGUMENT);
}

// One part comes, with some descriptors.
static void expect_part_refused(tide_device_cache* d, int descriptor, size_t count, uint64_t offset,
                                uint64_t bytes, tide_status wanted) {
  forger f = forger_of(1, 0, 1);
  f.has_part = true;
  f.descriptor_count = count;
  f.part = (tide_physical_share){ descriptor, offset, bytes };
  expect_forgery_refused(d, f, wanted);
}

DEVICE_TEST_OVER(test_device__forged_parts_of_offers_are_refused, device_host) {
  need_parts(m, d);
  forger far = forger_of(1, UINT64_MAX / 2 + 1, UINT64_MAX / 2 + 1);
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  far.has_part = true;
  far.descriptor_count = 1;
  far.part = (tide_physical_share){ nothing, 0, 2 * MIB };

  expect_part_refused(d, file, 1, 0, 2 * MIB, TIDE_ERR_ARGUMENT);
  expect_part_refused(d, nothing, 1, 0, 2 * MIB, TIDE_ERR_ARGUMENT);
  expect_part_refused(d, nothing, 0, 0, 2 * MIB, TIDE_ERR_STATE);
  expect_part_refused(d, nothing, FORGED_FILES, 0, 2 * MIB, TIDE_ERR_STATE);
  expect_part_refused(d, nothing, 1, 0, 0, TIDE_ERR_ARGUMENT);
  expect_forgery_refused(d, far, TIDE_ERR_ARGUMENT);

  (void)close(file);
  (void)close(nothing);
}

enum { ACCEPTERS = 4 };

typedef struct crowd {
  tide_device_cache* device;
  const question* question;
} crowd;

static void* accept_often(void* user) {
  const crowd* const c = user;
  for (size_t i = 0; i < 5; ++i) {
    void* there = NULL;
    T_OK(tide_device_accept(c->device, &c->question->offer, &there));
    T_OK(tide_device_unimport(c->device, there));
  }
  return NULL;
}

DEVICE_TEST(test_device__several_threads_accept_while_others_allocate) {
  need_parts(m, d);
  tide_device_cache* const other = device_new(m, 0, NULL);
  const question q = offer_of(d, take(d, NULL, BYTES));
  crowd c = { other, &q };

  pthread_t threads[ACCEPTERS];
  for (size_t i = 0; i < ACCEPTERS; ++i) t_thread_start(&threads[i], accept_often, &c);
  for (size_t i = 0; i < 200; ++i) give(d, take(d, NULL, (i % 20 + 1) * MIB));
  for (size_t i = 0; i < ACCEPTERS; ++i) t_thread_join(threads[i]);

  tide_device_free(other);
}
