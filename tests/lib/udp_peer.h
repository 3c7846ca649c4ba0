/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_UDP_PEER_H
#define SENNIT_TESTS_UDP_PEER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <sennit/sennit.h>

/*
 * One of two processes with an RC connection between them, on any device, by plain verbs.
 * Both run the same steps and keep in step through a socket. What fails ends the process
 * with a sentence.
 */

#define PEER_AREA  (8u << 20)
#define PEER_DEPTH 64
#define PEER_ACCESS                                                                  \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* What one tells the other. */
struct peer_card {
	uint8_t gid[16];
	uint64_t addr;
	uint32_t key, qpn, psn;
};

struct peer {
	const char *name; /* for messages */
	int with;	  /* the socket to the other */
	struct snt_ctx *ctx;
	const struct snt_control *control;
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *bytes; /* what goes out, then what comes in, of PEER_AREA each */
	struct peer_card card, other;
};

struct peer_opts {
	const char *netns;   /* a network namespace to enter before; needs root */
	const char *soft;    /* addresses, "" for loopback; NULL: verbs */
	const char *devices; /* a list, as in SENNIT_DEVICES */
	enum ibv_mtu mtu;
	bool ipv6; /* of several GIDs, one of those */
	uint8_t timeout, retries;
};

_Noreturn void peer_fail(const struct peer *peer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Reads what a device is: "soft", "soft=ADDRESSES" or "verbs=LIST", with "@NETNS" at its
 * end. The text is cut apart. */
void peer_parse(char *text, struct peer_opts *opts);

/* The context with its devices only. */
void peer_open_ctx(struct peer *peer, const struct peer_opts *opts);
/* All of it. */
void peer_open(struct peer *peer, const struct peer_opts *opts);
void peer_close(struct peer *peer);

/* Tells the other, and is told. */
void peer_swap(const struct peer *peer, const void *ours, void *theirs, size_t size);
/* Both have come here. */
void peer_meet(struct peer *peer);

static inline uint8_t *peer_out(const struct peer *peer)
{
	return peer->bytes;
}

static inline uint8_t *peer_in(const struct peer *peer)
{
	return peer->bytes + PEER_AREA;
}

/* The offsets are in the memory of either. */
void peer_post(struct peer *peer, enum ibv_wr_opcode opcode, uint64_t local,
	       uint64_t remote, uint32_t length, uint64_t add);
void peer_post_recv(struct peer *peer, uint64_t local, uint32_t length);
/* Waits for one completion, sleeping now and then. */
struct ibv_wc peer_wait(struct peer *peer);
/* The same, and it is a success. */
struct ibv_wc peer_wait_good(struct peer *peer);

void peer_fill(uint8_t *bytes, size_t length, unsigned seed);
bool peer_filled(const uint8_t *bytes, size_t length, unsigned seed);

#endif
