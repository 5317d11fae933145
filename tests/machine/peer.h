// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A second process with its own machine, for tests of sharing. The test program executes itself in the role
// `peer_role`. The two exchange requests and answers over a socket, one struct each, with descriptors. The
// peer ends when the socket is closed.
//
//   peer p = peer_new();
//   const peer_message share = peer_ask(&p, PEER_RAW_NEW, bytes);     // the peer allocates and exports
//   ...
//   peer_kill(&p);  or  peer_end(&p);
#ifndef TIDEMARK_TESTS_PEER_H
#define TIDEMARK_TESTS_PEER_H

#include "machine/machines.h"
#include "process.h"

typedef enum peer_verb {
  PEER_OPEN,             // make a machine: `name`
  PEER_RAW_NEW,          // allocate `number` bytes and export them: `raw`
  PEER_RAW_RELEASE,      // give them back
  PEER_RAW_IMPORT,       // open `raw`
  PEER_RAW_UNIMPORT,     // close it
  PEER_PHYSICAL_NEW,     // make and map `number` bytes, and export them: `physical`, with a descriptor
  PEER_PHYSICAL_IMPORT,  // open `physical`, give the handle up and keep the mapping
  PEER_PHYSICAL_END,     // end the mapping, and free the handle if it is still there
  PEER_FILL,             // write the byte `number` everywhere
  PEER_CHECK             // is the byte `number` everywhere? answers `number`: 1 or 0
} peer_verb;

typedef struct peer_message {
  uint32_t verb;    // a peer_verb
  uint32_t status;  // a tide_status; in answers only
  uint64_t number;
  uint64_t bytes;  // how long the memory is
  char name[8];
  tide_raw_share raw;
  tide_physical_share physical;
} peer_message;

typedef t_process peer;

// ---------------------------------------------------------------------------------------------------
// Messages

typedef union peer_control {
  struct cmsghdr header;  // for its alignment
  char bytes[CMSG_SPACE(sizeof(int))];
} peer_control;

// Sends a message, and a descriptor unless it is -1. The sender keeps the descriptor.
static inline bool peer_send(int to, const peer_message* message, int descriptor) {
  peer_message copy = *message;
  peer_control control = { .bytes = { 0 } };
  struct iovec part = { &copy, sizeof copy };
  struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };
  if (descriptor >= 0) {
    packet.msg_control = &control;
    packet.msg_controllen = sizeof control;
    struct cmsghdr* const header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  return sendmsg(to, &packet, MSG_NOSIGNAL) == (ssize_t)sizeof copy;
}

// Receives a message. Sets `out_descriptor` to -1, or to the descriptor of the message, which the caller
// closes.
static inline bool peer_receive(int from, peer_message* out, int* out_descriptor) {
  peer_control control = { .bytes = { 0 } };
  struct iovec part = { out, sizeof *out };
  struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control };
  packet.msg_controllen = sizeof control;
  *out_descriptor = -1;
  if (recvmsg(from, &packet, 0) != (ssize_t)sizeof *out) return false;
  const struct cmsghdr* const header = CMSG_FIRSTHDR(&packet);
  if (header != NULL) memcpy(out_descriptor, CMSG_DATA(header), sizeof(int));
  return true;
}

// ---------------------------------------------------------------------------------------------------
// The peer's side

typedef struct peer_state {
  tide_machine* m;
  tide_physical physical;
  uint8_t* memory;
  size_t bytes;
} peer_state;

#define PEER_TRY(call)                                \
  do {                                                \
    const tide_status peer_status_ = (call);          \
    if (peer_status_ != TIDE_OK) return peer_status_; \
  } while (0)

static inline tide_status peer_raw_new(peer_state* s, peer_message* message) {
  void* memory = NULL;
  s->bytes = (size_t)message->number;
  PEER_TRY(tide_machine_raw_alloc(s->m, 0, s->bytes, &memory));
  s->memory = memory;
  return tide_machine_raw_export(s->m, 0, memory, &message->raw);
}

static inline tide_status peer_raw_import(peer_state* s, peer_message* message) {
  void* memory = NULL;
  s->bytes = (size_t)message->bytes;
  PEER_TRY(tide_machine_raw_import(s->m, 0, &message->raw, &memory));
  s->memory = memory;
  return TIDE_OK;
}

static inline tide_status peer_map(peer_state* s) {
  void* range = NULL;
  PEER_TRY(tide_machine_address_reserve(s->m, 0, s->bytes, 0, NULL, &range));
  PEER_TRY(tide_machine_map(s->m, range, s->physical));
  s->memory = range;
  return tide_machine_set_access(s->m, range, s->bytes, 0, TIDE_ACCESS_READ_WRITE);
}

static inline tide_status peer_physical_new(peer_state* s, peer_message* message) {
  s->bytes = (size_t)message->number;
  PEER_TRY(tide_machine_physical_new(s->m, 0, s->bytes, TIDE_PHYSICAL_SHAREABLE, &s->physical));
  PEER_TRY(peer_map(s));
  return tide_machine_physical_export(s->m, s->physical, &message->physical);
}

static inline tide_status peer_physical_import(peer_state* s, peer_message* message, int descriptor) {
  message->physical.descriptor = descriptor;
  s->bytes = (size_t)message->physical.bytes;
  PEER_TRY(tide_machine_physical_import(s->m, 0, &message->physical, &s->physical));
  PEER_TRY(peer_map(s));
  PEER_TRY(tide_machine_physical_free(s->m, s->physical));
  s->physical = NULL;
  return TIDE_OK;
}

static inline tide_status peer_physical_end(peer_state* s) {
  PEER_TRY(tide_machine_unmap(s->m, s->memory, s->bytes));
  if (s->physical == NULL) return TIDE_OK;
  PEER_TRY(tide_machine_physical_free(s->m, s->physical));
  s->physical = NULL;
  return TIDE_OK;
}

static inline tide_status peer_check(peer_state* s, peer_message* message) {
  uint8_t* const copy = malloc(s->bytes);
  const uint8_t value = (uint8_t)message->number;
  message->number = 1;
  device_read(s->m, 0, s->memory, copy, s->bytes);
  for (size_t i = 0; i < s->bytes; ++i) {
    if (copy[i] != value) message->number = 0;
  }
  free(copy);
  return TIDE_OK;
}

static inline tide_status peer_answer(peer_state* s, peer_message* message, int descriptor) {
  switch ((peer_verb)message->verb) {
    case PEER_OPEN: return machine_new(message->name, NULL, &s->m);
    case PEER_RAW_NEW: return peer_raw_new(s, message);
    case PEER_RAW_RELEASE: return tide_machine_raw_release(s->m, 0, s->memory);
    case PEER_RAW_IMPORT: return peer_raw_import(s, message);
    case PEER_RAW_UNIMPORT: return tide_machine_raw_unimport(s->m, s->memory);
    case PEER_PHYSICAL_NEW: return peer_physical_new(s, message);
    case PEER_PHYSICAL_IMPORT: return peer_physical_import(s, message, descriptor);
    case PEER_PHYSICAL_END: return peer_physical_end(s);
    case PEER_FILL: device_fill(s->m, 0, s->memory, (uint8_t)message->number, s->bytes); return TIDE_OK;
    case PEER_CHECK: return peer_check(s, message);
  }
  return TIDE_ERR_MACHINE;
}

T_ROLE(peer_role) {
  const int to = atoi(argument);
  peer_state state = { NULL, NULL, NULL, 0 };
  peer_message message;
  int descriptor = -1;
  while (peer_receive(to, &message, &descriptor)) {
    message.physical.descriptor = -1;
    message.status = (uint32_t)peer_answer(&state, &message, descriptor);
    const bool has_made = message.verb == PEER_PHYSICAL_NEW && message.status == TIDE_OK;
    if (!peer_send(to, &message, has_made ? message.physical.descriptor : -1)) break;
    if (has_made) (void)close(message.physical.descriptor);
    if (descriptor >= 0) (void)close(descriptor);
  }
  tide_machine_free(state.m);
  (void)close(to);
}

// ---------------------------------------------------------------------------------------------------
// The test's side

// Sends a request and receives the answer; its descriptor is in `physical.descriptor`.
static inline peer_message peer_ask_with(peer* p, peer_message question) {
  peer_message answer;
  int descriptor = -1;
  T_CHECK(peer_send(p->socket, &question, question.physical.bytes != 0 ? question.physical.descriptor : -1));
  T_CHECK(peer_receive(p->socket, &answer, &descriptor));
  answer.physical.descriptor = descriptor;
  return answer;
}

// Sends a request that must succeed.
static inline peer_message peer_ask(peer* p, peer_verb verb, uint64_t number) {
  const peer_message question = { .verb = (uint32_t)verb, .number = number };
  const peer_message answer = peer_ask_with(p, question);
  T_STATUS((tide_status)answer.status, TIDE_OK);
  return answer;
}

static inline peer peer_new(void) {
  peer p = t_process_new("peer_role");
  peer_message question = { .verb = PEER_OPEN };
  (void)snprintf(question.name, sizeof question.name, "%s", t_variant());
  T_STATUS((tide_status)peer_ask_with(&p, question).status, TIDE_OK);
  return p;
}

static inline void peer_expect(peer* p, uint8_t value) { T_EQ(peer_ask(p, PEER_CHECK, value).number, 1); }

static inline void peer_kill(peer* p) { t_process_kill(p); }
static inline void peer_end(peer* p) { t_process_end(p); }

#endif
