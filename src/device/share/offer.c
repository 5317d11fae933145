// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory for other processes where only bytes can be sent. A raw segment goes as its 64 bytes. Of what needs
// file descriptors the bytes say whom to ask: a thread of the allocator listens at a socket, shares the block
// when somebody comes, and sends the descriptors. So nothing is kept for an offer, and nothing ends it.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/sys.h"
#include "device/share/share.h"

enum { OFFER_VERSION = 1, OFFER_RAW = 1, OFFER_PARTS = 2, NAME_BYTES = 40 };

#define NAME_BEGIN "tidemark-"  // of all sockets: no other is talked to

// What the bytes of an offer are.
typedef struct offer_words {
  uint32_t version;
  uint32_t kind;
  tide_raw_share raw;     // OFFER_RAW
  char name[NAME_BYTES];  // OFFER_PARTS: of the socket
  uint64_t address;       //   and the block
  uint64_t handle;
} offer_words;

_Static_assert(sizeof(offer_words) <= sizeof(tide_offer), "an offer has room for its words");

typedef struct offer_question {
  uint64_t address;
  uint64_t handle;
} offer_question;

// Packets with the parts follow.
typedef struct offer_answer {
  uint32_t status;  // a tide_status
  uint32_t reserved;
  tide_share share;
} offer_answer;

struct tide__offers {
  tide_device_cache* device;  // borrowed
  int listener;
  tide__atomic_u32 is_ending;
  pthread_t thread;
  char name[NAME_BYTES];
};

// ---------------------------------------------------------------------------------------------------
// Answering

// Sends the parts, some in a packet. The descriptors are closed by the caller.
static int parts_send(int socket, const tide_physical_share* parts, size_t count) {
  int files[TIDE__SYS_SOCKET_FILES];
  int error = 0;
  for (size_t i = 0; i < count && error == 0; i += TIDE__SYS_SOCKET_FILES) {
    const size_t some = tide__min(count - i, TIDE__SYS_SOCKET_FILES);
    for (size_t k = 0; k < some; k++) files[k] = parts[i + k].descriptor;
    error = tide__sys_socket_send(socket, &parts[i], some * sizeof *parts, files, some);
  }
  return error;
}

// Shares the block that was asked for; it may have been released since it was offered.
static tide_status block_share(tide_device_cache* device, const offer_question* question, tide_share* share,
                               tide_physical_share** parts) {
  tide_block block = { NULL, 0 };
  void* const address = tide__pointer(question->address);
  TIDE_TRY(tide_device_find(device, address, &block));
  TIDE_REQUIRE(block.handle == question->handle, TIDE_ERR_HANDLE, "device_offer: the block was released");
  *share = (tide_share)TIDE_SHARE_INIT;
  const tide_status status = tide_device_share(device, address, share, NULL, 0);
  if (status != TIDE_ERR_LIMIT) return status;
  const size_t count = share->part_count;
  *parts = tide__heap_alloc(device->heap, count, sizeof **parts);
  TIDE_REQUIRE(*parts != NULL, TIDE_ERR_NO_MEMORY, "device_offer: no memory for %zu parts", count);
  const tide_status shared = tide_device_share(device, address, share, *parts, count);
  if (shared == TIDE_OK && share->part_count == count) return TIDE_OK;
  tide__heap_release(device->heap, *parts, count, sizeof **parts);
  *parts = NULL;
  return shared == TIDE_OK ? TIDE_ERR_STATE : shared;
}

static void client_answer(tide_device_cache* device, int client) {
  offer_question question = { 0, 0 };
  offer_answer answer = { 0 };
  tide_physical_share* parts = NULL;
  if (tide__sys_socket_receive(client, &question, sizeof question, NULL, 0) != 0) return;
  answer.status = (uint32_t)block_share(device, &question, &answer.share, &parts);
  const size_t count = parts != NULL ? answer.share.part_count : 0;
  const bool is_sent = tide__sys_socket_send(client, &answer, sizeof answer, NULL, 0) == 0;
  if (is_sent) (void)parts_send(client, parts, count);  // who misses some says so itself
  for (size_t i = 0; i < count; i++) tide__sys_file_close(parts[i].descriptor);
  tide__heap_release(device->heap, parts, count, sizeof *parts);
}

static void* offers_serve(void* user) {
  struct tide__offers* const offers = user;
  while (tide__load_acquire(&offers->is_ending) == 0) {  // pairs with tide__offers_close
    int client = -1;
    if (tide__sys_socket_accept(offers->listener, &client) != 0) {
      if (tide__load_acquire(&offers->is_ending) == 0) tide__sys_sleep_ns(1000000);  // no descriptors left
      continue;
    }
    client_answer(offers->device, client);
    tide__sys_file_close(client);
  }
  return NULL;
}

static tide_status offers_start(struct tide__offers* offers) {
  (void)snprintf(offers->name, sizeof offers->name, NAME_BEGIN "%d-%016" PRIx64, tide__sys_process(),
                 tide__sys_random());
  int error = tide__sys_socket_listen(offers->name, &offers->listener);
  TIDE_REQUIRE(error == 0, TIDE_ERR_UNSUPPORTED, "device_offer: no socket: %s", strerror(error));
  error = tide__sys_thread_start(&offers->thread, offers_serve, offers);
  if (error == 0) return TIDE_OK;
  tide__sys_file_close(offers->listener);
  return TIDE_FAIL(TIDE_ERR_UNSUPPORTED, "device_offer: no thread: %s", strerror(error));
}

// The caller has the gate.
static tide_status offers_make(tide_device_cache* device) {
  struct tide__offers* const made = tide__heap_alloc(device->heap, 1, sizeof *made);
  TIDE_REQUIRE(made != NULL, TIDE_ERR_NO_MEMORY, "device_offer: no memory");
  made->device = device;
  const tide_status status = offers_start(made);
  if (status == TIDE_OK) device->offers = made;
  else tide__heap_release(device->heap, made, 1, sizeof *made);
  return status;
}

void tide__offers_close(tide_device_cache* device) {
  struct tide__offers* const offers = device->offers;
  if (offers == NULL) return;
  tide__store_release(&offers->is_ending, 1);  // pairs with offers_serve
  tide__sys_socket_wake(offers->listener);
  (void)pthread_join(offers->thread, NULL);
  tide__sys_file_close(offers->listener);
  device->offers = NULL;
  tide__heap_release(device->heap, offers, 1, sizeof *offers);
}

// ---------------------------------------------------------------------------------------------------
// Offering

static tide_status offer_parts(tide_device_cache* device, const void* address, offer_words* words) {
  tide_block block = { NULL, 0 };
  TIDE_TRY(tide_device_find(device, address, &block));
  (void)tide__gate_enter(device);
  const tide_status status = device->offers != NULL ? TIDE_OK : offers_make(device);
  tide__gate_leave(device);
  TIDE_TRY(status);
  words->kind = OFFER_PARTS;
  memcpy(words->name, device->offers->name, sizeof words->name);
  words->address = tide__address(address);
  words->handle = block.handle;
  return TIDE_OK;
}

tide_status tide_device_offer(tide_device_cache* device, const void* address, tide_offer* out,
                              uint64_t* out_offset) {
  TIDE_REQUIRE(device != NULL && out != NULL && out_offset != NULL, TIDE_ERR_ARGUMENT,
               "device_offer: no device, out or offset");
  memset(out, 0, sizeof *out);
  *out_offset = 0;
  tide_share share = TIDE_SHARE_INIT;
  offer_words words;
  memset(&words, 0, sizeof words);
  words.version = OFFER_VERSION;
  const tide_status status = tide_device_share(device, address, &share, NULL, 0);
  if (status == TIDE_ERR_LIMIT) {
    TIDE_TRY(offer_parts(device, address, &words));
  } else {
    TIDE_TRY(status);
    words.kind = OFFER_RAW;
    words.raw = share.raw;
    *out_offset = share.offset;
  }
  memcpy(out, &words, sizeof words);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Accepting

// What came of the parts. Each has a descriptor, which is to be closed.
typedef struct part_list {
  tide_physical_share* parts;  // owned
  size_t count;
  size_t capacity;
} part_list;

// Takes the next packet of parts. There is room for no more than came and one packet, whatever was promised.
static tide_status parts_receive(tide_device_cache* device, int socket, size_t count, part_list* list) {
  int files[TIDE__SYS_SOCKET_FILES];
  const size_t some = tide__min(count - list->count, TIDE__SYS_SOCKET_FILES);
  TIDE_REQUIRE(tide__heap_grow(device->heap, (void**)&list->parts, &list->capacity, list->count + some,
                               sizeof *list->parts),
               TIDE_ERR_NO_MEMORY, "device_accept: no memory for %zu parts", list->count + some);
  tide_physical_share* const into = list->parts + list->count;
  const int error = tide__sys_socket_receive(socket, into, some * sizeof *into, files, some);
  TIDE_REQUIRE(error == 0, TIDE_ERR_STATE, "device_accept: only %zu of %zu parts arrived: %s", list->count,
               count, strerror(error));
  for (size_t k = 0; k < some; k++) into[k].descriptor = files[k];
  list->count += some;
  return TIDE_OK;
}

// Imports what was answered, with the parts that come behind it.
static tide_status answer_import(tide_device_cache* device, int socket, const offer_answer* answer,
                                 void** out) {
  const size_t count = answer->share.part_count;
  part_list list = { NULL, 0, 0 };
  tide_status status = TIDE_OK;
  if (count == 0) status = TIDE_FAIL(TIDE_ERR_STATE, "device_accept: the block is shared without parts");
  while (status == TIDE_OK && list.count < count) status = parts_receive(device, socket, count, &list);
  if (status == TIDE_OK) status = tide_device_import(device, &answer->share, list.parts, out);
  for (size_t i = 0; i < list.count; i++) tide__sys_file_close(list.parts[i].descriptor);
  tide__heap_release(device->heap, list.parts, list.capacity, sizeof *list.parts);
  return status;
}

// The status that another process answered, if it is one.
static tide_status status_of(uint32_t number) {
  switch (number) {
#define STATUS_CASE(name, value, text) \
  case TIDE_##name: return TIDE_##name;
    TIDE_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
    default: return TIDE_ERR_STATE;
  }
}

static tide_status accept_parts(tide_device_cache* device, const offer_words* words, void** out) {
  const offer_question question = { words->address, words->handle };
  offer_answer answer = { 0 };
  int socket = -1;
  int error = tide__sys_socket_connect(words->name, &socket);
  TIDE_REQUIRE(error == 0, TIDE_ERR_STATE, "device_accept: cannot reach the process that offers: %s",
               strerror(error));
  error = tide__sys_socket_send(socket, &question, sizeof question, NULL, 0);
  if (error == 0) error = tide__sys_socket_receive(socket, &answer, sizeof answer, NULL, 0);
  tide_status status = status_of(answer.status);
  if (error == 0 && status == TIDE_OK) status = answer_import(device, socket, &answer, out);
  tide__sys_file_close(socket);
  TIDE_REQUIRE(error == 0, TIDE_ERR_STATE, "device_accept: no answer: %s", strerror(error));
  TIDE_REQUIRE(answer.status == TIDE_OK, status, "device_accept: the block at %#llx is %s",
               (unsigned long long)words->address, "not shared any more");
  return status;
}

tide_status tide_device_accept(tide_device_cache* device, const tide_offer* offer, void** out) {
  TIDE_REQUIRE(device != NULL && offer != NULL && out != NULL, TIDE_ERR_ARGUMENT,
               "device_accept: no device, offer or out");
  *out = NULL;
  offer_words words;
  memcpy(&words, offer, sizeof words);
  const bool has_end = memchr(words.name, 0, sizeof words.name) != NULL;
  TIDE_REQUIRE(words.version == OFFER_VERSION && has_end, TIDE_ERR_ARGUMENT,
               "device_accept: the bytes are not an offer");
  if (words.kind == OFFER_PARTS) {
    TIDE_REQUIRE(strncmp(words.name, NAME_BEGIN, strlen(NAME_BEGIN)) == 0, TIDE_ERR_ARGUMENT,
                 "device_accept: no process offers at a socket of that name");
    return accept_parts(device, &words, out);
  }
  TIDE_REQUIRE(words.kind == OFFER_RAW, TIDE_ERR_ARGUMENT, "device_accept: an offer of kind %u", words.kind);
  const tide_share share = { .size = sizeof share, .bytes = 1, .raw = words.raw };
  return tide_device_import(device, &share, NULL, out);
}
