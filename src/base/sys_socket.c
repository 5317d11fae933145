// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Packets with file descriptors between processes of one user. The sockets have abstract names, which
// disappear with their last descriptor.
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/sys.h"

#define PATIENCE_S 10  // timeout for a peer that does not answer

typedef union control {
  struct cmsghdr header;  // for its alignment
  char bytes[CMSG_SPACE(TIDE__SYS_SOCKET_FILES * sizeof(int))];
} control;

uint64_t tide__sys_random(void) {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) number = tide__sys_clock_ns();
  return number;
}

// ---------------------------------------------------------------------------------------------------
// Connections

static int name_write(const char* name, struct sockaddr_un* out, socklen_t* out_bytes) {
  const size_t length = strlen(name);
  if (length + 1 > sizeof out->sun_path) return ENAMETOOLONG;
  *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
  memcpy(out->sun_path + 1, name, length);  // the zero byte before it makes it an abstract name
  *out_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
  return 0;
}

// Checks that the peer is a process of the same user, and sets the timeouts.
static int peer_check(int socket) {
  struct ucred peer = { 0 };
  socklen_t bytes = sizeof peer;
  const struct timeval patience = { PATIENCE_S, 0 };
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return errno;
  if (peer.uid != geteuid()) return EPERM;
  if (setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0) return errno;
  return setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 ? 0 : errno;
}

int tide__sys_socket_listen(const char* name, int* out) {
  struct sockaddr_un address;
  socklen_t bytes = 0;
  int error = name_write(name, &address, &bytes);
  if (error != 0) return error;
  *out = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (*out < 0) return errno;
  if (bind(*out, (const struct sockaddr*)&address, bytes) == 0 && listen(*out, SOMAXCONN) == 0) return 0;
  error = errno;
  tide__sys_file_close(*out);
  return error;
}

int tide__sys_socket_accept(int listener, int* out) {
  *out = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (*out < 0) return errno;
  const int error = peer_check(*out);
  if (error != 0) tide__sys_file_close(*out);
  return error;
}

int tide__sys_socket_connect(const char* name, int* out) {
  struct sockaddr_un address;
  socklen_t bytes = 0;
  int error = name_write(name, &address, &bytes);
  if (error != 0) return error;
  *out = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (*out < 0) return errno;
  error = connect(*out, (const struct sockaddr*)&address, bytes) == 0 ? peer_check(*out) : errno;
  if (error != 0) tide__sys_file_close(*out);
  return error;
}

void tide__sys_socket_wake(int socket) { (void)shutdown(socket, SHUT_RDWR); }

// ---------------------------------------------------------------------------------------------------
// Packets

int tide__sys_socket_send(int socket, const void* bytes, size_t count, const int* files, size_t file_count) {
  control c = { .bytes = { 0 } };
  struct iovec part = { (void*)(uintptr_t)bytes, count };
  struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };
  if (file_count > TIDE__SYS_SOCKET_FILES) return EINVAL;
  if (file_count > 0) {
    packet.msg_control = &c;
    packet.msg_controllen = CMSG_SPACE(file_count * sizeof *files);
    c.header.cmsg_level = SOL_SOCKET;
    c.header.cmsg_type = SCM_RIGHTS;
    c.header.cmsg_len = CMSG_LEN(file_count * sizeof *files);
    memcpy(CMSG_DATA(&c.header), files, file_count * sizeof *files);
  }
  const ssize_t sent = sendmsg(socket, &packet, MSG_NOSIGNAL);
  return sent < 0 ? errno : (size_t)sent == count ? 0 : EPROTO;
}

int tide__sys_socket_receive(int socket, void* bytes, size_t count, int* files, size_t file_count) {
  control c = { .bytes = { 0 } };
  struct iovec part = { bytes, count };
  struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c };
  const ssize_t got = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC);
  if (got < 0) return errno;
  const struct cmsghdr* header = CMSG_FIRSTHDR(&packet);
  if (header != NULL && (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)) header = NULL;
  const size_t came = header != NULL ? (header->cmsg_len - CMSG_LEN(0)) / sizeof *files : 0;
  const int* const carried = header != NULL ? (const int*)(const void*)CMSG_DATA(header) : NULL;
  const bool is_whole = (size_t)got == count && (packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  if (is_whole && came == file_count) {
    if (came > 0) memcpy(files, carried, came * sizeof *files);
    return 0;
  }
  for (size_t i = 0; i < came; i++) tide__sys_file_close(carried[i]);
  return EPROTO;
}
