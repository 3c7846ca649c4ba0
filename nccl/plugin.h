/* SPDX-License-Identifier: MIT */
#ifndef SNT_NCCL_PLUGIN_H
#define SNT_NCCL_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sennit/sennit.h>

#include "net.h"

/*
 * libnccl-net-sennit.so: NCCL's messages over virtual queue pairs.
 *
 *	net.h        NCCL's interface, in all its versions
 *	versions.c   the tables that NCCL looks up, and what differs between them
 *	process.c    what a process has once: the context and its virtual devices
 *	log.c        sentences in NCCL's log
 *	memory.c     registered memory
 *	address.c    the address at which a listener is reached
 *	control.c    the TCP connection beside a queue pair: frames, end of the peer
 *	setup.c      listen, connect, accept
 *	comm.c       a queue pair and its requests: polling, testing, closing
 *	data.c       isend, irecv
 *
 * Threads. NCCL calls listen, connect, accept, registration and close on one thread of a
 * rank, and isend, irecv, iflush and test on another, at the same time; several ranks may be
 * threads of one process. The context and memory are for any thread. A comm has a CQ of its
 * own, without a loop, and belongs to one thread at a time: to the first until it is
 * connected, then to the second, then to the one that closes it. NCCL orders these. Thus no
 * call on a comm takes a lock.
 *
 * Messages. The two ends of a comm have roles: one sends, one receives. For each irecv() the
 * receiver posts a notification receive, and sends the sender a grant: the address, size and
 * keys of the buffer. isend() takes the oldest grant and writes the message into the buffer
 * with one WRITE_IMM, which is cut over all lanes and consumes the notification receive. So
 * sends and receives match in posting order, and isend() without a grant is a NULL request,
 * which NCCL repeats. Both ends number requests from 0, and request k is in place k modulo
 * NCCL_REQUESTS_MAX; the receiver has at most so many requests outstanding, which is also the
 * number of grants for which the sender has posted receives.
 */

/*
 * Log. Each failure is one sentence at NCCL's WARN level.
 */

void plugin_set_log(nccl_log_fn log);
void plugin_log(enum nccl_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Logs and returns @result. */
int plugin_fail(enum nccl_result result, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * The process
 */

struct virtual_device {
	char name[64];	/* "mlx5_0+mlx5_1" */
	char *pci_path; /* NULL: unknown, or several */
	uint32_t mask;	/* of the context's devices */
	uint64_t guid;
	uint32_t speed_mbps;
	int port;
	struct nccl_vdevice_v12
		parts; /* by NCCL's numbers; itself if it is not made of others */
};

/* Opens the context, or uses the one that is open. Each success wants a process_close(). */
int process_open(nccl_log_fn log);
void process_close(void);
/* Valid while it is open. */
struct snt_ctx *process_ctx(void);
int process_device_count(void);
/* NULL, with a sentence in the log, if there is none. Valid while the process lives. */
const struct virtual_device *process_device(int index);
/* Makes one of others, or finds it. */
int process_make_device(const struct nccl_vdevice_v12 *parts, int *index_out);
/* NULL if it is not set. */
const char *process_setting(const char *name);

/*
 * Memory
 */

struct memory {
	struct snt_mem *mem;
	size_t token_length;
	uint8_t token[SNT_TOKEN_PACKED_MAX]; /* packed: what a grant contains */
};

int memory_register(void *data, size_t size, int type, struct memory **memory_out);
int memory_register_dmabuf(void *data, size_t size, uint64_t offset, int fd,
			   struct memory **memory_out);
int memory_release(struct memory *memory);

/*
 * Addresses
 */

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

#define ADDRESS_TEXT_MAX 80

socklen_t address_length(const union address *address);
/* "10.0.0.1:4000" */
void address_text(const union address *address, char *text, size_t size);
/* A TCP socket that listens where peers reach these devices, not blocking; or -errno, with
 * a sentence in @why. */
int address_listen(uint32_t device_mask, union address *address_out, char *why,
		   size_t why_size);

/*
 * Handles and frames: what peers read. Integers are in network byte order.
 */

#define PROTOCOL_MAGIC	 "sennitNC"
#define PROTOCOL_VERSION 1

/*
 * What listen() returns and NCCL carries to the peer. NCCL's own transports have the
 * listener's address at the beginning of their handles as well, followed by a random number
 * which the connecting end sends first. So a peer that uses one of these instead of the
 * plugin connects here, and is recognised by this number.
 */
struct handle {
	union address address;
	uint64_t nonce;
	char magic[8];
	uint32_t version;
	/* Local to the connecting process: the comm that is being connected. */
	struct comm *comm;
};

_Static_assert(offsetof(struct handle, nonce) == 32, "NCCL's transports have it here");
_Static_assert(offsetof(struct handle, magic) == 40, "as in all versions");
_Static_assert(offsetof(struct handle, version) == 48, "as in all versions");
_Static_assert(sizeof(struct handle) <= NCCL_HANDLE_BYTES, "a handle");

enum frame_kind {
	FRAME_CARD = 1,	   /* the body is a packed card */
	FRAME_REFUSED = 2, /* the body is a sentence */
	FRAME_READY = 3,   /* this end can receive */
};

/* The head is the same in all versions. */
struct frame {
	uint64_t nonce; /* the handle's */
	char magic[8];
	uint32_t version;
	uint16_t kind;
	uint16_t length; /* of the body */
	uint8_t body[SNT_CARD_PACKED_MAX];
};

#define FRAME_HEAD offsetof(struct frame, body)

/*
 * The control connection: TCP, not blocking. It carries the setup, and after that its end is
 * the news that the peer has closed the comm or died.
 */

struct control {
	int fd; /* -1: none */
	char peer[ADDRESS_TEXT_MAX];
	size_t sent, received;
	struct frame out, in;
};

/* Children of this process do not inherit the socket; returns it. */
int socket_keep(int fd);
void socket_close(int fd);

/* Takes over a connected or connecting socket. */
void control_begin(struct control *control, int fd, const union address *peer);
void control_end(struct control *control);
/* Prepares a frame to send. */
void control_put(struct control *control, uint64_t nonce, enum frame_kind kind,
		 const void *body, size_t length);
/* 1 if the frame has been sent, 0 if not yet, or -errno. */
int control_send(struct control *control);
/* 1 if a frame of this version has been received, 0 if not yet, or -errno: -EPROTO, the peer
 * is not sennit but knows @nonce; -ESTALE, it does not know it; -EPROTONOSUPPORT, it has
 * another version; -ECONNRESET, it has closed. */
int control_recv(struct control *control, uint64_t nonce);
/* Sends a last sentence. */
void control_refuse(struct control *control, uint64_t nonce, const char *text);
/* Has the peer closed its end, or died? Costs a system call. */
bool control_lost(const struct control *control);

/*
 * Comms
 */

enum comm_role {
	COMM_SENDS,
	COMM_RECEIVES,
};

enum request_state {
	REQUEST_FREE,
	REQUEST_POSTED,
	REQUEST_DONE,
};

struct request {
	struct comm *comm;
	enum request_state state;
	size_t room; /* of a receive */
	size_t size; /* of the message, once it is DONE */
};

/* What the receiver sends for each irecv(). */
struct grant {
	uint64_t addr, size, token_length;
	uint8_t token[SNT_TOKEN_PACKED_MAX];
};

/* How far a connection has been made. */
enum comm_step {
	COMM_DIALING,
	COMM_SENDING_CARD,
	COMM_AWAITING_CARD,
	COMM_SENDING_READY,
	COMM_AWAITING_READY,
	COMM_UP,
};

struct comm {
	enum comm_role role;
	enum comm_step step;
	/* Other than NCCL_SUCCESS: requests that are not done will not be. */
	enum nccl_result failed;
	bool closing, closed;
	struct snt_cq *cq;
	struct snt_qp *qp;
	/* A place for each request. The sender receives grants there, the receiver sends
	 * them from there. */
	struct grant *grants;
	struct snt_mem *grant_mem;
	/* Counted since the comm was made. The sender has received `grants_done` grants,
	 * and used one for each request; the receiver's device has sent `grants_done`. */
	uint32_t requests, grants_done;
	struct request request[NCCL_REQUESTS_MAX];
	uint64_t messages, bytes;
	/* By the clock, in nanoseconds: when the control connection was last looked at,
	 * and when it was found to be at its end, or 0. */
	uint64_t looked_ns, lost_ns;
	uint64_t nonce;
	struct control control;
	struct comm *next_attempt; /* while connect() goes on */
};

int comm_create(enum comm_role role, const struct virtual_device *device,
		int traffic_class, struct comm **comm_out);
/* Ends its traffic at once, and frees it. */
void comm_destroy(struct comm *comm);
/* Takes completions. */
void comm_poll(struct comm *comm);
/* Does what is to be done while nothing happens: finds out whether the peer still lives. */
void comm_idle(struct comm *comm);
/* Logs the sentence, if it is the first of this comm. Returns what the comm failed with. */
int comm_fail(struct comm *comm, enum nccl_result result, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Posts the receive of a grant. */
int comm_post_grant_recv(struct comm *comm, uint32_t place);

/*
 * What NCCL calls
 */

int net_listen(int device, int traffic_class, void *handle, void **listener_out);
int net_connect(int device, int traffic_class, void *handle, void **comm_out);
int net_accept(void *listener, void **comm_out);
/* Destroys the comms of connect() calls that NCCL has given up. */
void net_forget_attempts(void);
int net_close_listen(void *listener);
int net_isend(void *comm, void *data, size_t size, void *memory, void **request_out);
int net_irecv(void *comm, void *data, size_t size, void *memory, void **request_out);
int net_test(void *request, int *done, int *sizes);

#endif
